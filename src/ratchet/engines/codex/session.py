"""One session of the Codex CLI: what it used and said, what its errors mean, and its result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ratchet.config.engine_settings import Prices
from ratchet.engines.codex.configuration import CodexAccess
from ratchet.engines.codex.events import CodexEvents, Rollout
from ratchet.engines.endpoint import Cause, SettingNames, cause_of, failure_of
from ratchet.engines.engine import EventKind, Failure, Fault, Request, Session
from ratchet.engines.program import answer_of, check_budget, refuse_cost_limit
from ratchet.engines.providers import price_of, priced
from ratchet.engines.session_home import KeptSessions
from ratchet.kernel import Usage, decoded
from ratchet.sandbox import Finished


class KeptRollouts:
    def __init__(self, kept: KeptSessions) -> None:
        self._kept = kept

    def keep(self, thread: str, rollout: Rollout, hide: Callable[[str], str]) -> None:
        """Keep the rollout of a thread, without secrets. Raises `OSError` and `ValueError`."""
        if rollout.file is not None:
            self._kept.put(thread, hide(decoded(rollout.file.read())).encode())

    def bring_back(self, thread: str, rollouts: Path) -> bool:
        """Put the rollout of a thread where Codex looks for it; false if it is not kept any more."""
        name = f"rollout-2000-01-01T00-00-00-{thread}.jsonl"
        return self._kept.restore(thread, rollouts / "2000" / "01" / "01" / name)


_BY_REASON: Mapping[str, Cause] = {
    "usage_limit_exceeded": Cause.CREDIT,
    "context_window_exceeded": Cause.SIZE,
    "rate_limit_exceeded": Cause.LATER,
    "server_overloaded": Cause.LATER,
    "internal_server_error": Cause.DOWN,
    "invalid_prompt": Cause.CONTENT,
    "cyber_policy": Cause.CONTENT,
    "unauthorized": Cause.KEY,
}

# What is the matter with Codex itself, and not with the endpoint.
_OWN: tuple[tuple[re.Pattern[str], Failure, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), failure, hint)
    for pattern, failure, hint in (
        (r"missing environment variable", Failure.MISSING, "put the key into {variable}"),
        (
            r"unknown configuration field|unknown feature",
            Failure.MISSING,
            "use a version of Codex that knows every setting; see docs/engines.md",
        ),
        (
            r"required mcp server|mcp (server|client).*(failed|timed out)",
            Failure.CRASHED,
            "start the MCP server by hand to see why it fails",
        ),
        (r"incomplete response (?!.*content_filter)", Failure.BAD_OUTPUT, "ask for less in one session"),
    )
)
_STATUS = re.compile(r"status:? (\d{3})\b", re.IGNORECASE)
_WAIT = re.compile(r"try again in (?:(\d+)m)?(?:(\d+(?:\.\d+)?)\s*(ms|s))", re.IGNORECASE)


def fault_of(message: str, reason: Any, names: SettingNames) -> Fault:
    """The failure behind an error of Codex; `reason` is what the rollout says."""
    failure, hint = _meaning(message, reason, names)
    return Fault(
        failure,
        f"Codex failed: {message.strip() or 'it did not say why'}",
        hint=hint,
        retry_after=_seconds_in(message) if failure is Failure.RATE_LIMITED else None,
    )


def _meaning(message: str, reason: Any, names: SettingNames) -> tuple[Failure, str]:
    cause = _BY_REASON.get(reason) if isinstance(reason, str) else None
    for pattern, failure, hint in () if cause else _OWN:
        if pattern.search(message):
            return failure, hint.format(variable=names.key)
    cause = cause or cause_of(_status(message, reason), message) or _guess(message)
    return failure_of(cause), names.hint(cause)


def _status(message: str, reason: Any) -> int | None:
    """The status that the endpoint answered with, as far as Codex tells it."""
    for detail in reason.values() if isinstance(reason, dict) else ():
        status = detail.get("http_status_code") if isinstance(detail, dict) else None
        if isinstance(status, int):
            return status
    if found := _STATUS.search(message):
        return int(found[1])
    return 400 if reason == "bad_request" or message.lstrip().startswith("{") else None


def _guess(message: str) -> Cause:
    return Cause.LATER if "rate limit" in message.lower() else Cause.DOWN


def _seconds_in(message: str) -> float | None:
    found = _WAIT.search(message)
    if found is None:
        return None
    minutes, number, unit = found.groups()
    return int(minutes or 0) * 60 + float(number) / (1000 if unit.lower() == "ms" else 1)


# Codex itself watches only an answer that has begun. One that never begins looks from here like a model that thinks,
# so this is the longest that a model may think.
_PATIENCE = 4
_LONGEST_PAUSE = 60.0


class CodexSession:
    def __init__(
        self, request: Request, conversation: CodexEvents, access: CodexAccess, prices: Mapping[str, Prices]
    ) -> None:
        self.request = request
        self.conversation = conversation
        self._settings = access.settings
        self._names = access.names
        self._prices = prices
        self.asked_model = access.model
        self._reported = Usage()
        self._resume: str | None = None
        self._layers: tuple[str, ...] = ()
        self._bounded_by: Mapping[str, str] = {}
        self.rollout: Rollout | None = None
        """None until there is a place for it."""

    @property
    def model(self) -> str | None:
        return (self.rollout.model if self.rollout else None) or self.asked_model

    @property
    def worked(self) -> bool:
        return self.conversation.worked or self._reported.tokens > 0

    def used(self) -> Usage:
        """What the session has used until now; the listener gets an event whenever that is more tokens than before."""
        transcript = self.conversation.transcript
        tokens = self._tokens()
        usage = replace(priced(tokens, self._price()), wall_ms=transcript.wall_ms)
        if usage.tokens > self._reported.tokens:
            self._reported = usage
            transcript.say(EventKind.USAGE, data={"model": self.model, **asdict(usage)})
        return usage

    def check_price(self) -> None:
        """Raise `Fault` when a budget of money is given that could not be held to."""
        if self._price() is None:
            refuse_cost_limit(self.request, self.model, "the model that Codex chooses by itself")

    def _price(self) -> Prices | None:
        settings = self._settings
        return price_of(self.model, self._prices, url=settings.base_url, keyless=not settings.key_variable)

    def look(self) -> Fault | None:
        """What is to end the session while it runs."""
        if fault := check_budget(self.request, self.used()):
            return fault
        talk, pause = self.conversation, min(_LONGEST_PAUSE, self._settings.idle_seconds)
        if talk.waits and not talk.worked and talk.silent_seconds > pause:
            # It does not say for how long. Nothing was done yet, so it is tried again after a pause that is told.
            return Fault(
                Failure.RATE_LIMITED,
                f"the model server asked Codex to wait for more than {pause:g} s",
                hint="try again later, or run fewer sessions at once",
            )
        most = _PATIENCE * self._settings.idle_seconds
        if self.conversation.silent_seconds <= most:
            return None
        return Fault(
            Failure.CRASHED,
            f"Codex was silent for {most:g} seconds, and no command of it was running",
            hint="check the state of the endpoint, or raise engines.codex.idle_seconds",
        )

    def keep(self, kept: KeptRollouts, hide: Callable[[str], str]) -> None:
        """Let the session be resumed later. One that cannot be is still a session."""
        thread, rollout = self.conversation.thread, self.rollout
        if thread is None or rollout is None or rollout.file is None:
            return
        try:
            kept.keep(thread, rollout, hide)
        except (OSError, ValueError) as error:
            self.conversation.transcript.say(EventKind.NOTE, f"the session cannot be resumed: {error}")
        else:
            self._resume = thread

    def session(self, output: Any = None) -> Session:
        """What the session came to so far."""
        usage = self.used()
        return Session(
            engine="codex",
            model=self.model,
            text=self.conversation.text,
            output=output,
            usage=usage,
            resume=self._resume,
            transcript=self.conversation.transcript.content,
            data={"layers": list(self._layers), "bounded_by": dict(self._bounded_by)},
        )

    def conclude(self, finished: Finished, complaint: str) -> Session:
        """The session, now that Codex has ended. Raises `Fault` unless a turn was completed and can be used."""
        talk, usage = self.conversation, self.used()
        self._layers, self._bounded_by = finished.layers, finished.bounded_by
        if talk.error is not None or not talk.completed or finished.exit_code != 0:
            if complaint:
                talk.transcript.say(EventKind.NOTE, complaint)
            reason = self.rollout.reason if self.rollout else None
            raise fault_of(talk.error or complaint or _ending(finished), reason, self._names)
        if self.rollout is not None:
            self.rollout.check_sandbox()
        if fault := check_budget(self.request, usage):
            raise fault
        if not talk.worked:
            raise Fault(
                Failure.BAD_OUTPUT,
                "Codex ended its turn without having said or done anything",
                hint="the model may have refused: change the prompt, or try another model",
            )
        output = answer_of(self.request, talk.text, "Codex", note="Codex does not check answers itself: ")
        return self.session(output)

    def _tokens(self) -> Usage:
        if self.rollout is None:
            return Usage()
        self.rollout.read()
        total = self.conversation.usage
        return self.rollout.used if total is None else self.rollout.since_resumed(total)


def _ending(finished: Finished) -> str:
    if finished.signal is not None:
        return f"it was ended by signal {finished.signal}"
    return f"it ended with code {finished.exit_code} without completing its turn"
