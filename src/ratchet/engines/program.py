"""Run the program of an agent: confined, within its deadline and its budget, its output read line by line."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.engines.engine import (
    Capabilities,
    Failure,
    Fault,
    NotAnAnswer,
    Request,
    check_schema,
    parse_answer,
)
from ratchet.engines.providers import how_to_price, no_price
from ratchet.kernel import Misuse, RatchetError, Usage, decoded
from ratchet.sandbox import (
    Bounds,
    Broken,
    CannotStart,
    Finished,
    IsolationRefused,
    Policy,
    Running,
    Stopped,
    run,
    start,
)
from ratchet.sandbox.toolchain import program_places

# An agent runs compilers and test suites; the limits here only stop what runs wild.
_PROCESSES = 4096
_OUTPUT = 64 * 1024 * 1024
_LINES = 100_000
_AT_ONCE = 100
_LOOK_SECONDS = 0.25
# The sandbox ends what is left when this process could not.
_GRACE_SECONDS = 30.0

_CUT_SHORT = {
    Stopped.WALL: (Failure.TIMEOUT, "it ran for longer than its deadline"),
    Stopped.OUTPUT: (Failure.BAD_OUTPUT, f"it printed more than {_OUTPUT // 1024**2} MiB"),
    Stopped.PROCESSES: (Failure.CRASHED, f"it started more than {_PROCESSES} processes"),
    Stopped.MEMORY: (Failure.CRASHED, "it used more memory than there is"),
    Stopped.DISK: (Failure.CRASHED, "it wrote more to disk than it may"),
    Stopped.CPU: (Failure.CRASHED, "it used more CPU time than it may"),
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a program is called, and what of the machine it may touch.

    It sees the system, the programs on the PATH of its `environment`, its own directory, `readable` and `writable`, and
    writes only the latter. `argv` begins with an absolute path.
    """

    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    stdin: bytes = b""
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    places: Mapping[Path, Path] = field(default_factory=dict)
    network: bool = True

    @property
    def policy(self) -> Policy:
        return Policy(
            see_system=True,
            network=self.network,
            readable=(*program_places(Path(self.argv[0])), *self.readable),
            writable=self.writable,
            hidden=self.hidden,
            places=self.places,
            read_only=tuple(path / ".git" for path in self.writable if (path / ".git").exists()),
            environment=self.environment,
        )


async def supervise(
    invocation: Invocation,
    request: Request,
    *,
    hear: Callable[[bytes], None],
    look: Callable[[], Fault | None],
) -> Finished:
    """Run it to its end, handing each line of its output to `hear`. A fault that `look` finds meanwhile ends it.

    Raises that `Fault`, or one of its own when the deadline or the sandbox ends it. Nothing of it runs afterwards.
    """
    seconds = seconds_for(request)
    overrun: list[Fault] = []
    try:
        async with asyncio.timeout(seconds) as limit, _started(invocation, seconds) as running:
            watching = asyncio.create_task(_watch(look, limit, overrun))
            try:
                await _hear_all(running, hear)
                finished = await running.wait()
            finally:
                watching.cancel()
    except TimeoutError:
        raise (overrun or [out_of_time(request)])[0] from None
    except (IsolationRefused, CannotStart, Broken) as error:
        raise _not_run(error) from None
    if finished.stopped is not None:
        failure, why = _CUT_SHORT.get(
            finished.stopped, (Failure.CRASHED, finished.problem or "by the sandbox")
        )
        raise Fault(failure, f"the session was ended: {why}", hint="its transcript shows what it was doing")
    return finished


async def try_out(invocation: Invocation, seconds: float) -> Finished:
    """Run something short, such as a question for the version. Raises `Fault` if it cannot be started."""
    bounds = Bounds(wall_seconds=seconds, memory_bytes=None, processes=_PROCESSES)
    try:
        return await run(invocation.argv, cwd=invocation.cwd, bounds=bounds, policy=invocation.policy)
    except (IsolationRefused, CannotStart, Broken) as error:
        raise _not_run(error) from None


def check_budget(request: Request, usage: Usage) -> Fault | None:
    """What is to be raised when `usage` is over what the request allows."""
    over = request.limits.exceeded_by(usage)
    if over is None:
        return None
    measure, used, limit = over
    return Fault(
        Failure.BUDGET,
        f"the session used {used:g} of {limit:g} {measure} that it was given",
        hint="raise the budget, or ask for less in one session",
    )


def refuse_cost_limit(request: Request, model: str | None, described: str) -> None:
    """Raise `Fault` when the request limits money, although the price of the model is not known."""
    allowed = request.limits.cost_usd
    if allowed is not None:
        raise Fault(
            Failure.MISSING, no_price(model or described, allowed), hint=how_to_price(model or "MODEL")
        )


def answer_of(request: Request, text: str, name: str, *, note: str = "") -> Any:
    """The structured answer in `text`; none where none was asked for. Raises `Fault` if it does not fit."""
    if request.output_schema is None:
        return None
    try:
        return parse_answer(text, request.output_schema)
    except NotAnAnswer as error:
        raise Fault(
            Failure.BAD_OUTPUT,
            f"{name} did not answer as it was asked: {error}",
            hint=f"{note}try again, or try a model that keeps to schemas",
        ) from None


def could_not_write(error: OSError) -> Fault:
    """What is to be raised when the files of a session cannot be written or read."""
    return Fault(
        Failure.CRASHED,
        f"the files of the session cannot be used: {error}",
        hint="free some space and check the rights of Ratchet's home, then try again",
    )


def _not_run(error: RatchetError) -> Fault:
    failure = Failure.CRASHED if isinstance(error, Broken) else Failure.MISSING
    return Fault(failure, str(error), hint=error.hint or "`ratchet doctor` shows what works on this machine")


def _started(invocation: Invocation, seconds: float) -> AbstractAsyncContextManager[Running]:
    bounds = Bounds(
        wall_seconds=seconds + _GRACE_SECONDS,
        memory_bytes=None,
        processes=_PROCESSES,
        output_bytes=_OUTPUT,
        file_bytes=None,
    )
    return start(
        invocation.argv, cwd=invocation.cwd, stdin=invocation.stdin, bounds=bounds, policy=invocation.policy
    )


async def _hear_all(running: Running, hear: Callable[[bytes], None]) -> None:
    number = 0
    async for line in running:
        hear(line)
        number += 1
        if number > _LINES:
            raise Fault(
                Failure.BAD_OUTPUT,
                f"the session was ended: it printed more than {_LINES} lines",
                hint="its transcript shows what it was doing",
            )
        if number % _AT_ONCE == 0:
            # A flood must not keep this process from everything else.
            await asyncio.sleep(0)


async def _watch(look: Callable[[], Fault | None], limit: asyncio.Timeout, overrun: list[Fault]) -> None:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if fault := look():
            overrun.append(fault)
            limit.reschedule(asyncio.get_running_loop().time())
            return


def seconds_for(request: Request) -> float:
    """How long a session may take: its deadline, or the wall time of its budget if that is shorter."""
    allowed = request.limits.wall_seconds
    return request.deadline_seconds if allowed is None else min(request.deadline_seconds, allowed)


def out_of_time(request: Request) -> Fault:
    """What is to be raised when that time is over."""
    seconds = seconds_for(request)
    if seconds < request.deadline_seconds:
        return Fault(
            Failure.BUDGET,
            f"the session used up the {seconds:g} seconds of wall time that it was given",
            hint="raise the budget, or ask for less in one session",
        )
    return Fault(
        Failure.TIMEOUT,
        f"the session did not end within {seconds:g} seconds",
        hint="raise engines.deadline_seconds, or ask for less in one session",
    )


_SECONDS = 30.0
NOWHERE = {"PATH": os.defpath, "HOME": "/nonexistent"}


async def version_of(
    path: Path, pattern: re.Pattern[bytes], oldest: tuple[int, ...], *, fix: str, update: str
) -> str:
    """What `path --version` tells by `pattern`. Raises `Fault` if that is nothing, or older than `oldest`."""
    asking = Invocation((str(path), "--version"), Path("/"), NOWHERE, network=False)
    finished = await try_out(asking, _SECONDS)
    found = pattern.search(finished.stdout) if finished.ok else None
    if found is None:
        said = decoded(finished.stderr or finished.stdout).strip()[:200]
        raise Fault(
            Failure.MISSING,
            f"{path} --version does not print the version that it should: {said or finished.problem or 'nothing'}",
            hint=fix,
        )
    number = tuple(map(int, found.groups()))
    if number < oldest:
        raise Fault(
            Failure.MISSING,
            f"{path} is version {_dotted(number)}; at least {_dotted(oldest)} is needed",
            hint=update,
        )
    return _dotted(number)


def _dotted(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))


def check_fit(request: Request, engine: str, can: Capabilities) -> None:
    """Raise `Misuse` if the request makes no sense, or asks for more than a program in a sandbox `can` do."""
    if not request.prompt.strip():
        raise Misuse("the prompt is empty")
    if request.workspace is not None and not request.workspace.is_dir():
        raise Misuse(f"the workspace {request.workspace} is not a directory")
    asked = {
        "answer to a schema": request.output_schema is not None and not can.structured_output,
        "be given MCP servers": bool(request.mcp_servers) and not can.mcp_tools,
        "resume a session": request.resume is not None and not can.resumable,
        "be given tools of this process": bool(request.tools) and not can.own_tools,
        "be guarded tool by tool": request.guard is not None,
        "be held to a budget of tokens or money, since it does not report what it uses": (
            (request.limits.tokens is not None or request.limits.cost_usd is not None)
            and not can.reports_usage
        ),
    }
    for what, is_beyond in asked.items():
        if is_beyond:
            raise Misuse(
                f"the engine {engine} cannot {what}", hint="use another engine; see `ratchet engine list`"
            )
    if request.output_schema is not None:
        try:
            check_schema(request.output_schema)
        except ValueError as error:
            raise Misuse(str(error)) from None


_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_LOOPBACK = "127.0.0.1"


def past_the_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that let a session reach servers of this machine, where it has a proxy for everything else."""
    if not any(environment.get(name) for name in _PROXIES):
        return {}
    listed = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    value = listed if _LOOPBACK in listed.split(",") else ",".join(filter(None, (listed, _LOOPBACK)))
    return {"NO_PROXY": value, "no_proxy": value}
