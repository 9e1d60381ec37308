"""The journal of a run in the ledger.

Everything goes through one group commit: with many steps at once a transaction is shared by many of them. A step that
could do harm by being done twice waits until its start and its end are on disk; for one that only computes, the next
steps may begin before.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.flowkit.execution import Result, StepCall, StepError
from ratchet.flowkit.spec import WorkflowStep
from ratchet.kernel import Outcome, RunStatus, StateChanged, StepStatus
from ratchet.ledger import ArtifactStore, Step, Transaction, change_step
from ratchet.ledger.runs import close_attempt, create_step_row, open_attempt, status_of_run
from ratchet.ledger.tools import CallRow, record_calls
from ratchet.runtime import GroupCommit, JobContext
from ratchet.workflows.runs.results import keep_value, read_value


@dataclass(frozen=True, slots=True)
class Began:
    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Retried:
    """A try has failed and another follows."""

    name: str
    error: StepError
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Completed:
    name: str
    result: Result


@dataclass(frozen=True, slots=True)
class StepFailure:
    name: str
    spec: Mapping[str, Any]
    error: StepError


@dataclass(frozen=True, slots=True)
class Skipped:
    name: str
    spec: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class StepBlocked:
    """A step that waits for a person."""

    name: str
    spec: Mapping[str, Any]
    reason: str


Entry = Began | Retried | Completed | StepFailure | Skipped | StepBlocked


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of the run as the ledger has it, and the attempt at it that is open."""

    step: Step
    attempt_id: int | None = None


@dataclass(frozen=True, slots=True)
class StepPlace:
    """Whose steps are written, by which delivery of its job."""

    run_id: int
    job_id: int
    process_id: str
    artifacts: ArtifactStore


def write_entry(tx: Transaction, place: StepPlace, row: StepRow | None, entry: Entry) -> StepRow:
    """Write what happened to a step whose row is known, or that has none yet; the row as it is then."""
    if row is None:
        assert not isinstance(entry, Retried | Completed)
        made = create_step_row(tx, place.run_id, entry.name, entry.spec)
        row = StepRow(made)
    if isinstance(entry, Began):
        return _begin(tx, place, row.step)
    if row.attempt_id is None:
        return _end_untried(tx, place, row, entry)
    return _end_attempt(tx, place, row.step, row.attempt_id, entry)


def _begin(tx: Transaction, place: StepPlace, step: Step) -> StepRow:
    begun = _changed(tx, step, StepStatus.RUNNING)
    return StepRow(begun, open_attempt(tx, begun, process_id=place.process_id))


def _end_attempt(
    tx: Transaction,
    place: StepPlace,
    step: Step,
    attempt_id: int,
    entry: Retried | Completed | StepFailure | Skipped | StepBlocked,
) -> StepRow:
    """What became of an attempt that is open."""

    def end(to: StepStatus | None, outcome: Outcome, reason: str, result: Any = None) -> StepRow:
        close_attempt(tx, attempt_id, outcome, reason)
        if to is None:
            return StepRow(step)
        why = None if to is StepStatus.COMPLETED else reason
        return StepRow(_changed(tx, step, to, why, result, attempt_id))

    match entry:
        case Completed(result=found):
            kept = keep_value(tx, place.artifacts, found.value, run_id=place.run_id, name=entry.name)
            metrics = {"metrics": dict(found.metrics), "cached": found.cached, "tries": found.tries}
            reason = "cached" if found.cached else "returned"
            return end(StepStatus.COMPLETED, Outcome.PASSED, reason, {**kept, **metrics})
        case StepFailure(error=error):
            return end(StepStatus.FAILED, Outcome.FAILED, error.reason, _failure(place, error))
        case Retried(error=error):
            retried = end(None, Outcome.FAILED, error.reason)
            tx.event(
                "step.retrying",
                run_id=place.run_id,
                step_id=step.id,
                message=error.reason,
                data={"name": entry.name, "tries": error.tries, "pause_seconds": entry.pause_seconds},
            )
            return retried
        case StepBlocked(reason=reason):
            return end(StepStatus.BLOCKED, Outcome.ERROR, reason)
        case Skipped(reason=reason):
            return end(StepStatus.CANCELLED, Outcome.ERROR, reason)


def _end_untried(tx: Transaction, place: StepPlace, row: StepRow, entry: Entry) -> StepRow:
    """What became of a step for which nothing was called: skipped, held, or failed for want of its inputs."""
    step = row.step
    match entry:
        case StepFailure(error=error):
            begun = _changed(tx, step, StepStatus.RUNNING)
            return StepRow(_changed(tx, begun, StepStatus.FAILED, error.reason, _failure(place, error)))
        case Skipped(reason=reason):
            return StepRow(_changed(tx, step, StepStatus.CANCELLED, reason))
        case StepBlocked(reason=reason):
            return StepRow(_changed(tx, step, StepStatus.BLOCKED, reason))
    return row


def _changed(
    tx: Transaction,
    step: Step,
    to: StepStatus,
    reason: str | None = None,
    result: Any = None,
    attempt_id: int | None = None,
) -> Step:
    """The step with another status; one that has it already stays as it is."""
    if step.status is to:
        return step
    change_step(tx, step.id, to, expected=(step.status,), reason=reason, result=result, attempt_id=attempt_id)
    return replace(step, status=to)


def _failure(place: StepPlace, error: Any) -> dict[str, Any]:
    """Why a step failed, and in which delivery of the run's job: a later one, after a pause, tries again."""
    return {
        "error": error.reason,
        "hint": error.hint,
        "metrics": dict(error.metrics),
        "tries": error.tries,
        "job": place.job_id,
    }


_MOST_WAITING = 2_000
_RETRIES = 30
# Words of a running step are gathered for so long; they are many and small.
_WORDS_SECONDS = 0.1
_MOST_WORDS = 64 * 1024
_YIELD_SECONDS = 0.5

Note = Callable[[Transaction], None]


class LedgerJournal:
    """See `flowkit.ExecutionJournal`. `rows` are the steps that the run has from before."""

    def __init__(self, job: JobContext, rows: list[Step], *, pure: Callable[[StepCall], bool]) -> None:
        self._job = job
        self._place = StepPlace(job.run_id, job.job.id, job.process_id, job.ledger.artifacts)
        self._rows = {step.name: StepRow(step) for step in rows}
        # Rows as the transaction leaves them that is being written.
        self._changed: dict[str, StepRow] = {}
        self._resumed = frozenset(step.name for step in rows if step.status is StepStatus.RUNNING)
        self._pure = pure
        self._group = GroupCommit(self, in_thread=True, retries=_RETRIES)
        self._broken: BaseException | None = None
        self._unwanted: list[Skipped] = []
        self._running: dict[str, StepCall] = {}
        # The next transaction, whatever it is for, takes these along.
        self._calls: list[CallRow] = []
        self._words: dict[tuple[str, str], list[str]] = {}
        self._said: dict[tuple[str, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Steps speak from threads of their own while the words are written.
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()

    def finished(self, name: str) -> Result | StepError | None:
        row = self._rows.get(name)
        kept: Mapping[str, Any] = {} if row is None else row.step.result or {}
        if row is None:
            return None
        if row.step.status is StepStatus.COMPLETED:
            value = read_value(self._place.artifacts, kept)
            return Result(value, kept["metrics"], cached=kept["cached"], tries=kept["tries"])
        # What failed before a person resumed the run is tried again; what failed before a crash is not.
        if row.step.status is StepStatus.FAILED and kept.get("job") == self._place.job_id:
            return StepError(kept["error"], kept["tries"], kept["metrics"], kept["hint"])
        return None

    def is_resumed(self, name: str) -> bool:
        """Whether a step had begun in an earlier process of this run, and not ended."""
        return name in self._resumed

    async def started(self, call: StepCall) -> None:
        await self._give_way()
        if not call.container:
            self._running[call.name] = call
        await self._put(Began(call.name, _spec(call.step)), wait=not self._pure(call))

    async def retrying(self, call: StepCall, error: StepError, pause_seconds: float) -> None:
        await self._put(Retried(call.name, error, pause_seconds), wait=False)

    async def completed(self, call: StepCall, result: Result) -> None:
        await self._put(Completed(call.name, result), wait=not (self._pure(call) or result.cached))

    async def failed(self, call: StepCall, error: StepError) -> None:
        await self._put(StepFailure(call.name, _spec(call.step), error), wait=False)

    async def skipped(self, name: str, step: WorkflowStep, reason: str, *, wanted: bool) -> None:
        entry = Skipped(name, _spec(step), reason)
        if wanted:
            await self._put(entry, wait=False)
        else:
            # Final in the ledger; the run may still be paused, and then what failed is tried again.
            self._unwanted.append(entry)

    async def held(self, call: StepCall, reason: str) -> None:
        await self._put(StepBlocked(call.name, _spec(call.step), reason), wait=False)

    def note(self, note: Note) -> None:
        """Write something else in the next transaction."""
        self._add(note)

    def note_call(self, row: CallRow) -> None:
        """Write a call of a tool down for it."""
        self._calls.append(row)
        self._add(_nothing)

    def attempt_of(self, name: str) -> int | None:
        """The open attempt at a step, as far as it is on disk."""
        row = self._rows.get(name)
        return None if row is None else row.attempt_id

    def say(self, name: str, kind: str, text: str) -> None:
        """Record what a running step prints, from any thread; of one that prints too much only the beginning."""
        key = (name, kind)
        with self._lock:
            said = self._said.get(key, 0)
            if said >= _MOST_WORDS:
                return
            self._said[key] = said + len(text)
            self._words.setdefault(key, []).append(text)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._write_words_soon)

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write what comes while the block runs; when it ends well, everything is on disk."""
        try:
            yield
            # Once in any case: what was taken last may still be on its way to the disk.
            await self._flushed()
            while self._calls or self._words:
                await self._flushed()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._group.close()

    def end(self, tx: Transaction) -> None:
        """Write down, with the end of the run, which steps were never begun since others failed."""
        for entry in self._unwanted:
            self._write_entry(tx, entry)

    @contextlib.contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction of the group: with calls and words, and refused if the run was ended meanwhile."""
        calls = list(self._calls)
        with self._lock:
            words, self._words = self._words, {}
        self._changed = {}
        try:
            with self._job.write() as tx:
                status = status_of_run(tx, self._place.run_id)
                if status.final:
                    # It was ended with all its steps, and the job not stopped yet. Nothing may begin in it.
                    raise StateChanged("run", self._place.run_id, (str(RunStatus.RUNNING),), str(status))
                yield tx
                record_calls(tx, calls)
                self._write_words(tx, words)
        except BaseException:
            with self._lock:
                for key, texts in words.items():
                    self._words[key] = [*texts, *self._words.get(key, [])]
            raise
        del self._calls[: len(calls)]
        self._rows.update(self._changed)

    async def _give_way(self) -> None:
        """Begin nothing new while others wait for the place of a run in the background, and leave it to them when
        nothing runs any more, or only what waits for what is not to begin."""
        while self._job.should_yield():
            if all(call.lines is not None and call.lines.waiting for call in self._running.values()):
                self._job.give_way()
            await asyncio.sleep(_YIELD_SECONDS)

    async def _put(self, entry: Entry, *, wait: bool) -> None:
        self._raise_broken()
        if not isinstance(entry, Began):
            self._running.pop(entry.name, None)
        written = self._add(lambda tx: self._write_entry(tx, entry))
        if wait or len(self._group) > _MOST_WAITING:
            await self._until(written)

    async def _flushed(self) -> None:
        self._raise_broken()
        await self._until(self._add(_nothing))

    async def _until(self, written: asyncio.Future[None]) -> None:
        # Shielded: an entry is written even if nothing waits for it any more.
        await asyncio.shield(written)
        self._raise_broken()

    def _add(self, work: Note) -> asyncio.Future[None]:
        written = self._group.add(work)
        written.add_done_callback(self._look_at)
        return written

    def _look_at(self, written: asyncio.Future[None]) -> None:
        if self._broken is None and not written.cancelled():
            self._broken = written.exception()

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _write_entry(self, tx: Transaction, entry: Entry) -> None:
        row = self._changed.get(entry.name) or self._rows.get(entry.name)
        self._changed[entry.name] = write_entry(tx, self._place, row, entry)

    def _write_words_soon(self) -> None:
        if self._timer is None or self._timer.when() <= self._loop.time():
            self._timer = self._loop.call_later(_WORDS_SECONDS, self._add, _nothing)

    def _write_words(self, tx: Transaction, words: Mapping[tuple[str, str], list[str]]) -> None:
        for (name, kind), texts in words.items():
            row = self._changed.get(name) or self._rows.get(name)
            tx.event(
                f"step.{kind}",
                run_id=self._place.run_id,
                step_id=None if row is None else row.step.id,
                data={"name": name, "text": "".join(texts)},
            )


def _nothing(_tx: Transaction) -> None:
    """What waits besides is written with it."""


def _spec(step: WorkflowStep) -> dict[str, Any]:
    """What the ledger says about a step; the whole is in the run's own spec."""
    said = {
        "type": str(step.step_type),
        "tool": step.tool_name,
        "description": step.description,
        "depends_on": list(step.depends_on),
    }
    return {key: value for key, value in said.items() if value}
