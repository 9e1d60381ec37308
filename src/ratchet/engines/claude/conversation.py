"""One run of the Claude CLI: from its start to the end of its last process, and what its end means."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, CLINotFoundError, Message, ResultMessage

from ratchet.engines.claude.environment import Leash, server_names
from ratchet.engines.claude.events import ClaudeEvents
from ratchet.engines.endpoint import Cause, SettingNames, cause_of, failure_of
from ratchet.engines.engine import EventKind, Failure, Fault, Request

_WORDS = {
    Cause.KEY: "the endpoint refuses the key",
    Cause.CREDIT: "the account has no credit left",
    Cause.MODEL: "the endpoint does not have the model",
    Cause.LATER: "the endpoint asks to come back later",
    Cause.DOWN: "the session broke off",
}
_BUDGET = {
    "error_max_turns": "raise engines.claude.max_turns, or ask for less in one session",
    "error_max_budget_usd": "raise the budget, or ask for less in one session",
}


def check_ending(result: ResultMessage, *, names: SettingNames, retry_after: float | None) -> None:
    """Nothing if the session ended well. Raises `Fault` otherwise."""
    message = "; ".join(result.errors or []) or (result.result or "").strip() or result.subtype
    if result.subtype in _BUDGET:
        raise Fault(Failure.BUDGET, f"the session was stopped: {message}", hint=_BUDGET[result.subtype])
    if result.subtype == "error_max_structured_output_retries":
        raise Fault(
            Failure.BAD_OUTPUT, message, hint="make the schema simpler, or the prompt clearer about it"
        )
    if result.stop_reason == "refusal":
        raise Fault(Failure.REFUSED, f"the model refuses: {message}", hint="change the prompt or the model")
    if not result.is_error and result.subtype == "success":
        return
    raise _failed(result, message, names, retry_after)


def crashed(error: Exception, stderr: str) -> Fault:
    """The program broke off, or could not be understood."""
    if isinstance(error, CLINotFoundError):
        return Fault(Failure.MISSING, str(error), hint="run `ratchet engine check claude`")
    last = [line for line in stderr.splitlines() if not line.startswith("[claude-code:")]
    detail = "\n".join(last[-5:]) or str(error)
    return Fault(
        Failure.CRASHED,
        f"the Claude CLI broke off: {detail}",
        hint="run `ratchet engine check claude`, and see the session's transcript",
    )


def _failed(result: ResultMessage, message: str, names: SettingNames, retry_after: float | None) -> Fault:
    status: Any = result.api_error_status
    if status is None and message.startswith("Not logged in"):
        return Fault(Failure.MISSING, "the Claude CLI has no key", hint=f"set the variable {names.key}")
    cause = cause_of(status, message) or Cause.DOWN
    failure = failure_of(cause)
    answered = f" ({status})" if status is not None else ""
    return Fault(
        failure,
        f"{_WORDS.get(cause, 'the endpoint refuses the request')}{answered}: {message}",
        hint=names.hint(cause),
        retry_after=retry_after if failure is Failure.RATE_LIMITED else None,
    )


# An interrupted program still tells what the session cost; one that does not do so in this time is killed.
_GRACE_SECONDS = 3.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class TimeBounds:
    ends_at: float
    out_of_time: Fault
    idle_seconds: float


class Talk:
    """Runs in a task of its own, which is never cancelled: the SDK leaves its program behind when it is.

    The caller that waits for it may be cancelled at any time.
    """

    def __init__(
        self,
        options: ClaudeAgentOptions,
        request: Request,
        *,
        hearing: ClaudeEvents,
        leash: Leash,
        bounds: TimeBounds,
    ) -> None:
        self._client = ClaudeSDKClient(options)
        self._request = request
        self._hearing = hearing
        self._leash = leash
        self._bounds = bounds
        self._asked = False

    async def run(self) -> None:
        """Talk to the end. Raises `Fault` if there is none, or if it had to be brought about."""
        talking = asyncio.create_task(self._talk())
        try:
            await self._watch(talking)
        finally:
            await self._end(talking)
        if self._hearing.fault is not None:
            raise self._hearing.fault
        if talking.cancelled():
            raise _broken_off()
        talking.result()

    async def _watch(self, talking: asyncio.Task[None]) -> None:
        """Wait for the end of the talk, or for a reason to end it."""
        reason = asyncio.create_task(self._reason_to_end())
        ended = asyncio.create_task(self._leash.ended())
        try:
            await asyncio.wait({talking, reason, ended}, return_when=asyncio.FIRST_COMPLETED)
            if reason.done():
                await self._interrupt(talking)
            else:
                # Time to take in the last words of a program that has ended.
                await asyncio.wait({talking}, timeout=_GRACE_SECONDS)
        finally:
            reason.cancel()
            ended.cancel()

    async def _reason_to_end(self) -> None:
        hearing, bounds = self._hearing, self._bounds
        while not hearing.enough.is_set():
            now = time.monotonic()
            silent_at = (now if hearing.quiet_since is None else hearing.quiet_since) + bounds.idle_seconds
            if now >= bounds.ends_at:
                hearing.end_with(bounds.out_of_time)
            elif now >= silent_at:
                hearing.end_with(_silent(bounds.idle_seconds))
            else:
                with contextlib.suppress(TimeoutError):
                    # Not `wait_for`: that forgets a cancellation which comes together with the end.
                    async with asyncio.timeout(min(bounds.ends_at, silent_at) - now):
                        await hearing.enough.wait()

    async def _talk(self) -> None:
        try:
            with self._understood():
                await self._client.connect()
            self._hearing.say(EventKind.STARTED)
            with self._understood():
                await self._wait_for_servers()
                await self._client.query(self._request.prompt)
            self._asked = True
            await self._listen()
        finally:
            with self._understood():
                await self._client.disconnect()

    async def _listen(self) -> None:
        messages = self._client.receive_messages()
        while (message := await self._next(messages)) is not None:
            self._hearing.hear(message)
            if isinstance(message, ResultMessage):
                return
        raise _broken_off()

    async def _next(self, messages: AsyncIterator[Message]) -> Message | None:
        with self._understood():
            return await anext(messages, None)

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except Fault:
            raise
        except Exception as error:
            # The SDK raises plain exceptions besides its own.
            raise crashed(error, self._hearing.stderr) from error

    async def _wait_for_servers(self) -> None:
        """The program begins without a server that does not answer, and says nothing about it."""
        waiting = set(server_names(self._request))
        while waiting:
            for server in (await self._client.get_mcp_status())["mcpServers"]:
                if server["name"] in waiting and server["status"] == "connected":
                    waiting.discard(server["name"])
                elif server["name"] in waiting and server["status"] != "pending":
                    why = server.get("error") or server["status"]
                    raise Fault(
                        Failure.CRASHED,
                        f"the MCP server {server['name']} cannot be used: {why}",
                        hint="start it by hand to see what is wrong with it",
                    )
            if waiting:
                await asyncio.sleep(_LOOK_SECONDS)

    async def _interrupt(self, talking: asyncio.Task[None]) -> None:
        """Ask the program to stop, so that it tells what was used."""

        async def ask() -> None:
            # It may have ended by itself meanwhile; what remains is killed.
            with contextlib.suppress(Exception):
                await self._client.interrupt()

        if self._asked:
            asking = asyncio.create_task(ask())
            await asyncio.wait({talking}, timeout=_GRACE_SECONDS)
            asking.cancel()
            await asyncio.wait({asking})

    async def _end(self, talking: asyncio.Task[None]) -> None:
        """Kill what still runs and wait until nothing does, however often the wait is cancelled."""
        cancelled: asyncio.CancelledError | None = None
        while not talking.done():
            killing = asyncio.create_task(self._leash.kill())
            try:
                await asyncio.wait({talking, killing}, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait({talking}, timeout=_GRACE_SECONDS)
                # The SDK may wait on for a program that is gone. There is nothing that it could leave behind now.
                talking.cancel()
                await asyncio.wait({talking})
            except asyncio.CancelledError as error:
                cancelled = error
            finally:
                killing.cancel()
        if not talking.cancelled():
            talking.exception()
        if cancelled is not None:
            raise cancelled


def _broken_off() -> Fault:
    return Fault(
        Failure.CRASHED,
        "the Claude CLI ended without a result",
        hint="run `ratchet engine check claude`, and see the session's transcript",
    )


def _silent(seconds: float) -> Fault:
    return Fault(
        Failure.CRASHED,
        f"the endpoint said nothing for {seconds:g} seconds",
        hint="try again, or raise engines.claude.idle_seconds if the model needs that long",
    )
