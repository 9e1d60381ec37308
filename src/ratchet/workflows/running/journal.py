"""The journal of a run in the ledger.

Everything goes through one writer, which puts all that has gathered meanwhile into one transaction: with many steps at
once a commit is shared by many of them. A step that could do harm by being done twice waits until its start and its
end are on disk; for one that only computes, the next steps may begin before.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.flowkit.execution import Result, StepCall, StepError
from ratchet.flowkit.spec import WorkflowStep
from ratchet.kernel import LedgerUnavailable, RunStatus, StateChanged, StepStatus
from ratchet.ledger import Step, Transaction
from ratchet.ledger.runs import status_of_run
from ratchet.ledger.tools import CallRow, record_calls
from ratchet.runtime import JobContext
from ratchet.workflows.running.batch import Place, StepRow, write_entries
from ratchet.workflows.running.entries import Began, Blocked, Completed, Entry, Failed, Retried, Skipped
from ratchet.workflows.running.values import read_value

_MOST_WAITING = 2_000
_PATIENCE = 30
_RETRY_SECONDS = 1.0
# Words of a running step are gathered for so long; they are many and small.
_WORDS_SECONDS = 0.1
_MOST_WORDS = 64 * 1024
_YIELD_SECONDS = 0.5

Note = Callable[[Transaction], None]


@dataclass(slots=True)
class _Waiting:
    entries: list[Entry] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    calls: list[CallRow] = field(default_factory=list)
    written: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def some(self) -> bool:
        return bool(self.entries or self.notes or self.calls)


class LedgerJournal:
    """See `flowkit.ExecutionJournal`. Made by `journal_of`, which also loads what the run has done before."""

    def __init__(self, job: JobContext, rows: list[Step], *, pure: Callable[[StepCall], bool]) -> None:
        self._job = job
        self._place = Place(job.run_id, job.job.id, job.process_id, job.ledger.artifacts)
        self._rows = {step.name: StepRow(step) for step in rows}
        self._resumed = frozenset(step.name for step in rows if step.status is StepStatus.RUNNING)
        self._pure = pure
        self._waiting = _Waiting()
        self._wake = asyncio.Event()
        self._broken: BaseException | None = None
        self._unwanted: list[Skipped] = []
        self._running: set[str] = set()
        self._words: dict[tuple[str, str], list[str]] = {}
        self._said: dict[tuple[str, str], int] = {}
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
        # What failed before a person let the run go on is tried again; what failed before a crash is not.
        if row.step.status is StepStatus.FAILED and kept.get("job") == self._place.job_id:
            return StepError(kept["error"], kept["tries"], kept["metrics"], kept["hint"])
        return None

    def is_resumed(self, name: str) -> bool:
        """Whether a step had begun in an earlier life of this run, and not ended."""
        return name in self._resumed

    async def started(self, call: StepCall) -> None:
        await self._give_way()
        if not call.container:
            self._running.add(call.name)
        await self._put(Began(call.name, _spec(call.step)), wait=not self._pure(call))

    async def retrying(self, call: StepCall, error: StepError, pause_seconds: float) -> None:
        await self._put(Retried(call.name, error, pause_seconds), wait=False)

    async def completed(self, call: StepCall, result: Result) -> None:
        await self._put(Completed(call.name, result), wait=not (self._pure(call) or result.cached))

    async def failed(self, call: StepCall, error: StepError) -> None:
        await self._put(Failed(call.name, _spec(call.step), error), wait=False)

    async def skipped(self, name: str, step: WorkflowStep, reason: str, *, wanted: bool) -> None:
        entry = Skipped(name, _spec(step), reason)
        if wanted:
            await self._put(entry, wait=False)
        else:
            # Final in the ledger; the run may still be paused, and then what failed is tried again.
            self._unwanted.append(entry)

    async def held(self, call: StepCall, reason: str) -> None:
        await self._put(Blocked(call.name, _spec(call.step), reason), wait=False)

    def note(self, note: Note) -> None:
        """Write something else in the next transaction."""
        self._waiting.notes.append(note)
        self._wake.set()

    def note_call(self, row: CallRow) -> None:
        """Write a call of a tool down for it."""
        self._waiting.calls.append(row)
        self._wake.set()

    def attempt_of(self, name: str) -> int | None:
        """The open attempt at a step, as far as it is on disk."""
        row = self._rows.get(name)
        return None if row is None else row.attempt_id

    def say(self, name: str, kind: str, text: str) -> None:
        """Tell what a running step says, from any thread. Of one that says too much only the beginning is told."""
        key = (name, kind)
        with self._lock:
            said = self._said.get(key, 0)
            if said >= _MOST_WORDS:
                return
            self._said[key] = said + len(text)
            self._words.setdefault(key, []).append(text)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake.set)

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write what comes while the block runs; when it ends well, everything is on disk."""
        writer = asyncio.create_task(self._write_all())
        try:
            yield
            # Once in any case: what was taken last may still be on its way to the disk.
            await self._flushed()
            while self._waiting.some or self._words:
                await self._flushed()
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    def end(self, tx: Transaction) -> None:
        """Write down, with the end of the run, which steps were never begun since others failed."""
        self._rows.update(write_entries(tx, self._place, self._rows, self._unwanted))

    async def _give_way(self) -> None:
        """Begin nothing new while others wait for the place of a run in the background, and leave it to them when
        nothing runs any more."""
        while self._job.should_yield():
            if not self._running:
                self._job.give_way()
            await asyncio.sleep(_YIELD_SECONDS)

    async def _put(self, entry: Entry, *, wait: bool) -> None:
        self._raise_broken()
        if not isinstance(entry, Began):
            self._running.discard(entry.name)
        self._waiting.entries.append(entry)
        self._wake.set()
        if wait or len(self._waiting.entries) > _MOST_WAITING:
            await self._flushed()

    async def _flushed(self) -> None:
        self._raise_broken()
        written = self._loop.create_future()
        self._waiting.written.append(written)
        self._wake.set()
        await written

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    async def _write_all(self) -> None:
        batch = _Waiting()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if not (self._waiting.some or self._waiting.written):
                    await asyncio.sleep(_WORDS_SECONDS)
                batch, self._waiting = self._waiting, _Waiting()
                await self._write(batch)
                for future in batch.written:
                    if not future.done():
                        future.set_result(None)
        except BaseException as error:
            self._broken = error if isinstance(error, Exception) else asyncio.CancelledError()
            for future in (*batch.written, *self._waiting.written):
                if not future.done():
                    future.set_exception(self._broken)
                    # Whoever waited may have been cancelled; then nobody looks.
                    future.exception()
            if not isinstance(error, Exception):
                raise

    async def _write(self, batch: _Waiting) -> None:
        with self._lock:
            words, self._words = self._words, {}
        for tried in range(_PATIENCE + 1):
            try:
                changed = await asyncio.to_thread(self._commit, batch, words)
                break
            except LedgerUnavailable:
                if tried == _PATIENCE or self._job.stopping:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
        self._rows.update(changed)

    def _commit(self, batch: _Waiting, words: Mapping[tuple[str, str], list[str]]) -> dict[str, StepRow]:
        with self._job.write() as tx:
            status = status_of_run(tx, self._place.run_id)
            if status.final:
                # It was ended with all its steps, and the job has not been told yet. Nothing may begin in it any more.
                raise StateChanged("run", self._place.run_id, (str(RunStatus.RUNNING),), str(status))
            changed = write_entries(tx, self._place, self._rows, batch.entries)
            for note in batch.notes:
                note(tx)
            record_calls(tx, batch.calls)
            for (name, kind), texts in words.items():
                row = changed.get(name) or self._rows.get(name)
                tx.event(
                    f"step.{kind}",
                    run_id=self._place.run_id,
                    step_id=None if row is None else row.step.id,
                    data={"name": name, "text": "".join(texts)},
                )
        return changed


def _spec(step: WorkflowStep) -> dict[str, Any]:
    """What the ledger says about a step; the whole is in the run's own spec."""
    said = {
        "type": str(step.step_type),
        "tool": step.tool_name,
        "description": step.description,
        "depends_on": list(step.depends_on),
    }
    return {key: value for key, value in said.items() if value}
