"""The seam to whatever proposes changes: the engine, what it is asked, what it leaves, and how it fails."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from ratchet.kernel import Limits, RatchetError, Usage


class Fault(Exception):
    """Raised deep inside an engine; the engine adds what was used and said until then and raises `SessionFailed`."""

    def __init__(
        self, failure: Failure, message: str, *, hint: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.hint = hint
        self.retry_after = retry_after

    def failed(self, session: Session, *, worked: bool) -> SessionFailed:
        return SessionFailed(
            self.failure,
            str(self),
            session=session,
            hint=self.hint,
            retry_after=self.retry_after,
            worked=worked,
        )


class Failure(StrEnum):
    """Why there is nothing to judge. Each kind asks for another next step."""

    MISSING = "missing"
    """The engine itself is absent, of the wrong version or badly configured, or has no key."""
    NO_ACCESS = "no_access"
    """The endpoint does not accept the key, has no such model for it, or the account is out of credit."""
    REFUSED = "refused"
    """The endpoint or the model said no to this request, and will say no again."""
    RATE_LIMITED = "rate_limited"
    """The endpoint asks to come back later."""
    TIMEOUT = "timeout"
    """The deadline passed."""
    BUDGET = "budget"
    """The tokens or the money are used up."""
    CRASHED = "crashed"
    """The engine or its connection broke."""
    BAD_OUTPUT = "bad_output"
    """It ended by itself, but what it made cannot be used."""

    @property
    def is_permanent(self) -> bool:
        """Whether every session fails so, whatever it is asked, until a person changes something."""
        return self in (Failure.MISSING, Failure.NO_ACCESS)

    @property
    def is_hopeless(self) -> bool:
        """Whether the same request would fail so again."""
        return self.is_permanent or self in (Failure.REFUSED, Failure.BUDGET)


class SessionFailed(RatchetError):
    """A session that must not be judged. What it used and said until then is in `session`."""

    http_status = 502

    def __init__(
        self,
        failure: Failure,
        message: str,
        *,
        session: Session,
        hint: str | None = None,
        retry_after: float | None = None,
        worked: bool = True,
    ) -> None:
        """`worked` is false only when the model has certainly done nothing, so that trying again repeats nothing."""
        super().__init__(message, hint=hint)
        self.failure = failure
        self.session = session
        self.retry_after = retry_after
        self.worked = worked
        self.exit_code = 3 if failure is Failure.MISSING else 1


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, so that a flow can refuse one that does not fit before it costs anything.

    One that takes `own_tools` can be given functions of this process in `Request.tools`, and one that `learns_scores`
    says in its session's data what it proposed, and wants to be told the score of it.
    """

    edits_files: bool = False
    structured_output: bool = False
    mcp_tools: bool = False
    resumable: bool = False
    reports_usage: bool = False
    own_tools: bool = False
    learns_scores: bool = False


@dataclass(frozen=True, slots=True)
class McpServer:
    """Tools for one session: a server that listens at `url`, or a program to start that speaks over its pipes."""

    name: str
    url: str | None = None
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.argv):
            raise ValueError(f"the MCP server {self.name} needs either a url or an argv")

    def named_files(self) -> tuple[Path, ...]:
        """What its command line names, and what lies around that: it must be seen in a sandbox for it to start."""
        # Only now: few commands need the sandbox.
        from ratchet.sandbox.toolchain import named_places

        return named_places(self.argv)


@dataclass(frozen=True, slots=True)
class EngineTool:
    """A tool that runs in this process, not in the sandbox of the session.

    `run` is given what the model wrote, which fits `input_schema`, and returns what the model is told. Whatever it
    raises is told to the model as an error of the tool.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    run: Callable[[Mapping[str, Any]], Awaitable[str]]


Guard = Callable[[str, Mapping[str, Any]], Awaitable[str | None]]
"""Asked with a tool's name and input before it is used. A text forbids it and is told to the model; `None` allows."""


class EventKind(StrEnum):
    """What a session may say while it runs."""

    STARTED = "started"
    MESSAGE = "message"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    FILE_CHANGE = "file_change"
    RETRY = "retry"
    USAGE = "usage"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class SessionEvent:
    kind: EventKind
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def unheard(event: SessionEvent) -> None:
    """A listener that listens to nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """One use of an engine. Everything but `listen` decides what comes back.

    `environment` is for what the session runs, and `readable` are places that it must see besides its workspace, such
    as the repository behind it; `places` shows some of that by another path. What is `hidden` it must
    not see although it sees the machine, such as a judge's data.
    What lies below an `incidental` path of the workspace, such as logs, is no part of the question: a recording answers
    without it. `temperature` and `output_tokens`, the most of one answer, are for plain models; agents have their own.
    `repairs` is how often a model is sent back an answer that is not as asked, where the setting is not to count.
    """

    prompt: str
    workspace: Path | None = None
    system: str | None = None
    model: str | None = None
    output_schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    output_tokens: int | None = None
    repairs: int | None = None
    mcp_servers: tuple[McpServer, ...] = ()
    tools: tuple[EngineTool, ...] = ()
    guard: Guard | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    places: Mapping[Path, Path] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    incidental: tuple[str, ...] = ()
    resume: str | None = None
    deadline_seconds: float = 1800.0
    limits: Limits = field(default_factory=Limits)
    data: Mapping[str, Any] = field(default_factory=dict)
    listen: Callable[[SessionEvent], None] = field(default=unheard, compare=False)


@dataclass(frozen=True, slots=True)
class Session:
    """What one use of an engine came to.

    `text` is the last thing it said, `output` what it answered to an `output_schema`, already validated against it.
    `transcript` is everything that was said, one JSON document per line, without secrets. `resume` continues it.
    `ended_at` is in milliseconds since 1970; that of a recording is the one that was recorded, so that writing it
    down gives the same again.
    """

    engine: str
    model: str | None = None
    text: str = ""
    output: Any = None
    usage: Usage = field(default_factory=Usage)
    resume: str | None = None
    transcript: bytes = b""
    simulated: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)
    ended_at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)


# What one event may carry; a longer text is cut and says so. The whole is kept in the engine's own files, not here.
_TEXT = 64 * 1024
_WHOLE = 32 * 1024 * 1024


class Transcript:
    """Hands each event to the listener and keeps it as one line of JSON."""

    def __init__(self, request: Request, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._listen = request.listen
        self._clock = clock
        self._began = clock()
        self._lines: list[bytes] = []
        self._size = 0

    def say(self, kind: EventKind, text: str = "", data: Mapping[str, Any] | None = None) -> None:
        event = SessionEvent(kind, abridged(text), data or {})
        self._keep(event)
        self._listen(event)

    @property
    def content(self) -> bytes:
        return b"".join(self._lines)

    @property
    def wall_ms(self) -> int:
        return round((self._clock() - self._began) * 1000)

    def _keep(self, event: SessionEvent) -> None:
        if self._size >= _WHOLE:
            return
        line = {"ms": self.wall_ms, "kind": event.kind, "text": event.text, "data": event.data}
        encoded = json.dumps(line, ensure_ascii=True, default=str).encode() + b"\n"
        self._size += len(encoded)
        if self._size >= _WHOLE:
            encoded = json.dumps(
                {"ms": self.wall_ms, "kind": "note", "text": "the transcript was cut here"}
            ).encode()
        self._lines.append(encoded)


def abridged(text: str, most: int = _TEXT) -> str:
    """The beginning of what a transcript keeps of a text, and how much more there was."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more characters)"


@contextmanager
def cancelled_if_asked() -> Iterator[None]:
    """Ends as cancelled if the task was asked to meanwhile.

    Task groups raise what went wrong in that moment in place of the cancellation; a caller that retries after errors
    would do so for ever.
    """
    task = asyncio.current_task()
    assert task is not None
    asked_before = task.cancelling()
    try:
        yield
    except Exception as error:
        if task.cancelling() > asked_before:
            raise asyncio.CancelledError from error
        raise


_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class NotAnAnswer(ValueError):
    """What was said is not JSON, or not as the schema wants it; the message can be shown to the model."""


def parse_answer(text: str, schema: Mapping[str, Any]) -> Any:
    """The JSON in `text`, bare or in a fence, valid by `schema`. Raises `NotAnAnswer`."""
    return validate_answer(_json_in(text), schema)


def validate_answer(value: Any, schema: Mapping[str, Any]) -> Any:
    """`value` itself, if it is as `schema` wants it. Raises `NotAnAnswer`."""
    if problems := misfits(value, schema):
        raise NotAnAnswer(f"the answer does not fit its schema: {problems}")
    return value


def misfits(value: Any, schema: Mapping[str, Any], *, judge: Any = None) -> str | None:
    """What of `value` is not as `schema` wants it, with the path of each part; nothing if it fits.

    `judge` is the class of the validator, if not the usual one.
    """
    # Slow to import, and most sessions answer nothing structured.
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # An empty registry: the usual one would fetch what a `$ref` points at.
    validator = (judge or Draft202012Validator)(schema, registry=Registry())
    try:
        problems = sorted(validator.iter_errors(value), key=lambda each: list(map(str, each.path)))
    except (Unresolvable, RecursionError) as error:
        return f"the schema cannot be applied: {type(error).__name__}: {error}"
    return "; ".join(f"{each.json_path}: {each.message[:200]}" for each in problems[:5]) or None


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that no answer can be held against. Raises `ValueError`."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"the output schema is not a JSON Schema: {error.message}") from None


def _json_in(text: str) -> Any:
    for candidate in (text, *_FENCE.findall(text)):
        try:
            return json.loads(candidate, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            continue
    shown = text.strip()[:200] or "nothing"
    raise NotAnAnswer(f"the answer is not JSON: {shown!r}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether an engine could be used now, and what to do if not.

    `failure` is how a session would fail if it is not ready. `unpriced` is the model whose price is unknown, and
    `unproven` says why the look has not shown that a session would begin, although nothing speaks against it.
    """

    ready: bool
    detail: str
    fix: str | None = None
    failure: Failure = Failure.MISSING
    unpriced: str | None = None
    unproven: str | None = None


class Engine(Protocol):
    """Proposes changes. An engine holds no session of its own: two may run at once."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def propose(self, request: Request) -> Session:
        """Run one session to its end.

        Raises `SessionFailed` whenever there is nothing that may be judged, and `Misuse` for a request that this engine
        can never serve. Cancelling it ends every process it started before the cancellation is seen by the caller.
        """
        ...

    async def check(self) -> Readiness:
        """Look whether a session could start, without paying for one."""
        ...
