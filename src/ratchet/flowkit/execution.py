"""What the executor needs from its surroundings, and what it reports about a workflow that has run."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .errors import StepFailed
from .spec import WorkflowSpec, WorkflowStep

_ADDED = ("cpu_ms", "cost_microusd", "tokens", "unpriced_tokens")
_MOST = "peak_bytes"
SIMULATED = "simulated"
WITHIN = "within"
LINE = "line"
MOST_AHEAD = 256
"""How many lines a step that streams may be ahead of the slowest step that follows it."""


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

    A step that is `MOST_AHEAD` lines ahead of one that follows it waits, and others have its place meanwhile. Only
    steps that have begun are waited for: one that has not may need the end of this one first.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: list[Any] = []
        self._passed_on: list[tuple[int, Any]] = []
        self._news = asyncio.Event()
        self._done: dict[str, int] = {}
        """How many lines each step that follows is done with."""
        self._free: asyncio.Future[None] | None = None
        """Is done once the step that waits may give more."""
        self._stuck = False
        self.given = 0
        """How many lines this try has given."""
        self.on_first: Callable[[], None] | None = None
        self.end: StepRecord | None = None

    def begin(self) -> None:
        """A try begins."""
        self.given = 0
        self._let_go()

    def give(self, line: Any) -> Awaitable[None] | None:
        """From any thread. In the event loop of the execution, what is to be waited for before more is given, if the
        step is too far ahead."""
        with contextlib.suppress(RuntimeError):
            if _running_loop() is not self._loop:
                self._loop.call_soon_threadsafe(self.take, line)
                return None
            self.take(line)
        if self._is_within(len(self._passed_on), MOST_AHEAD):
            return None
        if self._free is None:
            self._free = self._loop.create_future()
            self._wake()
        return self._free

    def close(self, end: StepRecord) -> None:
        """The step has ended so; its value is the list of its lines."""
        self.begin()
        for line in end.value if end.status == "completed" and isinstance(end.value, list) else ():
            self.take(line)
        self.end = end
        self._wake()

    def join(self, follower: str) -> None:
        """A step begins to follow."""
        self._done[follower] = 0

    def count(self, follower: str) -> None:
        """A step that follows is done with one more line."""
        if follower in self._done:
            self._done[follower] += 1
            self._wake()

    def leave(self, follower: str) -> None:
        if self._done.pop(follower, None) is not None:
            self._wake()

    async def follow(self, follower: str) -> AsyncIterator[tuple[int, Any]]:
        """Each line with its number, until the step has ended; at most `MOST_AHEAD` more than it is done with."""
        at = 0
        while True:
            news = self._news
            while at < len(self._passed_on) and at - self._done.get(follower, at) < MOST_AHEAD:
                at += 1
                yield self._passed_on[at - 1]
            if self.end is not None and at == len(self._passed_on):
                return
            await news.wait()

    @property
    def waiting(self) -> bool:
        """Whether the step gives nothing more until those who follow it are further."""
        return self._free is not None

    async def room(self, number: int) -> None:
        """Wait until the line of this number would not be too far ahead."""
        await self._until(lambda: self._stuck or self._is_within(number, MOST_AHEAD))

    def stop(self) -> None:
        """No more lines come, since one could not be made; nothing needs to wait for those that follow."""
        self._stuck = True
        self._wake()

    @asynccontextmanager
    async def lending(
        self, place: AsyncExitStack, room: Callable[[], AbstractAsyncContextManager[object]]
    ) -> AsyncIterator[None]:
        """While the block runs, the place of the step is given back whenever it waits: those who follow may need it."""

        async def lend() -> None:
            while True:
                await self._until(lambda: self._free is not None)
                await place.aclose()
                await self._until(lambda: self._is_within(len(self._passed_on), MOST_AHEAD // 2))
                await place.enter_async_context(room())
                self._let_go()

        lender = asyncio.create_task(lend())
        try:
            yield
        finally:
            lender.cancel()
            await asyncio.gather(lender, return_exceptions=True)

    def _is_within(self, number: int, most: int) -> bool:
        return not self._done or number - min(self._done.values()) < most

    def _let_go(self) -> None:
        if self._free is not None and not self._free.done():
            self._free.set_result(None)
        self._free = None

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._news.wait()

    def take(self, line: Any) -> None:
        if self.end is not None:
            return
        number, self.given = self.given, self.given + 1
        if number < len(self._lines) and self._lines[number] == line:
            return
        self._lines[number : number + 1] = [line]
        self._passed_on.append((number, line))
        self._wake()
        if self.on_first is not None:
            first, self.on_first = self.on_first, None
            first()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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
