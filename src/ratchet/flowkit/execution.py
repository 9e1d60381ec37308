"""What the executor needs from its surroundings, and what it reports about a workflow that has run."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .errors import StepFailed
from .spec import WorkflowSpec, WorkflowStep

_ADDED = ("cpu_ms", "cost_microusd", "tokens", "unpriced_tokens")
_MOST = "peak_bytes"
SIMULATED = "simulated"
WITHIN = "within"
LINE = "line"


@dataclass(frozen=True)
class StepCall:
    """One try at one step: what is to be called with which values.

    `name` says where in the run: `clean`, `translate[3]` for an item of a list or a round, `report/draft` for a step
    inside a sub-workflow. `tool` is the step's own tool, or its fallback on the last try. `prompt` is the step's
    template with the values in their places. For a `container`, a list or a workflow, nothing is called itself.
    """

    name: str
    step: WorkflowStep
    workflow: WorkflowSpec
    values: Mapping[str, Any]
    tool: str | None
    prompt: str | None = None
    number: int = 1
    container: bool = False
    rounds: tuple[int, ...] = ()
    """In which round of each step that is repeated around it."""
    lines: StepLines | None = None
    """Takes the lines of a step that streams, as they come."""
    line: str | None = None
    """The hash of the line that it is done for, of a step that streams."""


class StepLines:
    """What a step that streams has given so far, in the event loop of the execution.

    A later try begins with the first line again, and only the value of the step is sure: where that has another line
    than was passed on, the new one is passed on as well.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: list[Any] = []
        self._passed_on: list[tuple[int, Any]] = []
        self._more = asyncio.Event()
        self.given = 0
        """How many lines this try has given."""
        self.on_first: Callable[[], None] | None = None
        self.end: StepRecord | None = None

    def begin(self) -> None:
        """A try begins."""
        self.given = 0

    def give(self, line: Any) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.take, line)

    def close(self, end: StepRecord) -> None:
        """The step has ended so; its value is the list of its lines."""
        self.begin()
        for line in end.value if end.status == "completed" and isinstance(end.value, list) else ():
            self.take(line)
        self.end = end
        self._more.set()

    async def follow(self) -> AsyncIterator[tuple[int, Any]]:
        """Each line with its number, until the step has ended."""
        at = 0
        while True:
            more = self._more
            while at < len(self._passed_on):
                at += 1
                yield self._passed_on[at - 1]
            if self.end is not None:
                return
            await more.wait()

    def take(self, line: Any) -> None:
        if self.end is not None:
            return
        number, self.given = self.given, self.given + 1
        if number < len(self._lines) and self._lines[number] == line:
            return
        self._lines[number : number + 1] = [line]
        self._passed_on.append((number, line))
        self._more.set()
        self._more = asyncio.Event()
        if self.on_first is not None:
            first, self.on_first = self.on_first, None
            first()


def lines_of(value: Any) -> list[Any]:
    """The lines of what a step came to: a list, a text, or what a program printed. Raises `StepFailed`."""
    if isinstance(value, Mapping) and isinstance(value.get("stdout"), str):
        value = value["stdout"]
    if isinstance(value, str):
        lines = [line.removesuffix("\r") for line in value.split("\n")]
        return lines if lines[-1] else lines[:-1]
    if isinstance(value, list):
        return value
    raise StepFailed(f"streams lines, but gives {type(value).__name__} and no list or text", final=True)


def line_hash(line: Any) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True, default=repr).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Result:
    """What a step returned. `metrics` are those of the try that made it; a `cached` one was not run again."""

    value: Any
    metrics: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False
    tries: int = 1


@dataclass(frozen=True)
class StepError:
    """Why a step failed. `metrics` are those of its last try."""

    reason: str
    tries: int = 1
    metrics: Mapping[str, Any] = field(default_factory=dict)
    hint: str | None = None


Inside = Callable[[Mapping[str, Any]], Awaitable[Result | StepError | None]]
"""Runs the workflow that a step holds to its end; `None` while it waits for a person."""


class StepCaller(Protocol):
    """Carries out one try. Raises `StepFailed` or `Held`; anything else it raises ends the whole execution."""

    async def call(self, call: StepCall) -> Result: ...

    async def sub_workflow(self, call: StepCall) -> WorkflowSpec:
        """The workflow of a step that names another one by its path or id."""
        ...

    async def around(self, call: StepCall, inside: Inside) -> Result | StepError | None:
        """Let the workflow that a step holds run. It may be a tool, with bounds of its own for what goes in and comes
        out. Raises as `call` does."""
        ...

    def fallback(self, call: StepCall) -> str | None:
        """The tool to use when the step's own has failed."""
        ...


class ExecutionJournal(Protocol):
    """Records what happens as it happens, and knows what happened before this process."""

    def finished(self, name: str) -> Result | StepError | None:
        """The result of a step that ended before this process took over the run."""
        ...

    async def started(self, call: StepCall) -> None: ...

    async def retrying(self, call: StepCall, error: StepError, pause_seconds: float) -> None: ...

    async def completed(self, call: StepCall, result: Result) -> None: ...

    async def failed(self, call: StepCall, error: StepError) -> None: ...

    async def skipped(self, name: str, step: WorkflowStep, reason: str, *, wanted: bool) -> None:
        """A step that is not run: because its condition does not hold (`wanted`), or because what it needs failed."""
        ...

    async def held(self, call: StepCall, reason: str) -> None: ...


@dataclass(frozen=True)
class StepRecord:
    """`status` is completed, failed, skipped, held or cancelled."""

    status: str
    value: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    cached: bool = False
    tries: int = 0


@dataclass(frozen=True)
class Executed:
    """How a workflow ended. `status` is completed, failed or held; `outputs` has those that exist, failed or not.

    `steps` is by name, with a record for each item of a list and each step of a sub-workflow.
    """

    status: str
    outputs: Mapping[str, Any]
    steps: Mapping[str, StepRecord]
    error: str | None = None


class QuietJournal:
    def finished(self, name: str) -> Result | StepError | None:
        return None

    async def started(self, call: StepCall) -> None: ...

    async def retrying(self, call: StepCall, error: StepError, pause_seconds: float) -> None: ...

    async def completed(self, call: StepCall, result: Result) -> None: ...

    async def failed(self, call: StepCall, error: StepError) -> None: ...

    async def skipped(self, name: str, step: WorkflowStep, reason: str, *, wanted: bool) -> None: ...

    async def held(self, call: StepCall, reason: str) -> None: ...


def metrics_within(records: Iterable[StepRecord]) -> dict[str, Any]:
    """The metrics of a step that calls nothing itself. What came from the cache took nothing, but is as simulated as
    it was."""
    total: dict[str, Any] = {}
    for record in records:
        for taken in (record.metrics, record.metrics.get(WITHIN, {})):
            if not record.cached:
                _add(total, taken)
            if taken.get(SIMULATED):
                total[SIMULATED] = True
    return {WITHIN: total} if total else {}


def _add(total: dict[str, Any], taken: Mapping[str, Any]) -> None:
    for name in _ADDED:
        if taken.get(name):
            total[name] = total.get(name, 0) + taken[name]
    if taken.get(_MOST):
        total[_MOST] = max(total.get(_MOST, 0), taken[_MOST])
