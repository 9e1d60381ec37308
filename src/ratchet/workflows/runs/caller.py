"""Carrying out the calls of a run: from the cache, here, or on another worker."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ratchet.flowkit.errors import StepFailed, StepHeld
from ratchet.flowkit.execution import Inside, Result, StepCall, StepError
from ratchet.flowkit.spec import StepType, WorkflowSpec
from ratchet.kernel import NotFound, decoded, exhausted
from ratchet.ledger import Spender, Transaction, to_json
from ratchet.ledger.questions import ANSWER_SCHEMA, ApprovalStatus, request_approval
from ratchet.ledger.workflows import find_step_result, keep_step_result
from ratchet.runtime import JobContext
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult, ToolUse
from ratchet.tools.invocation import ToolRateLimited, call_row, check_constraints
from ratchet.tools.mcp_tools import KeptServers
from ratchet.tools.placed import is_placed
from ratchet.workflows.runs.journal import LedgerJournal
from ratchet.workflows.runs.plan import FixedTool, RunPlan, StepWork
from ratchet.workflows.runs.remote_calls import Offering
from ratchet.workflows.runs.results import keep_value, read_value
from ratchet.workflows.runs.tool_workflow import (
    call_held,
    held_metrics,
    metrics_of,
    use_metrics,
    with_workflows,
)

_PROC = Path("/proc")
# A step that starts is busy for a moment; one that is seen to wait in so many looks in a row waits.
_LOOKS = 3
_LOOK_SECONDS = 0.02
_STATE, _PARENT, _THREADS = 0, 1, 17
"""Where they stand in /proc/PID/stat, behind the name."""


class Cores(asyncio.Semaphore):
    """Lets `cores` in at once, and one more for each that is inside and waits, up to `most`.

    Whether those inside compute is looked at only while others queue: `computing` counts the processes below this one
    that run or would like to. Where that cannot be known, no more than `cores` are let in.
    """

    def __init__(self, cores: int, most: int, computing: Callable[[], int | None] | None = None) -> None:
        super().__init__(cores)
        self._cores = cores
        self._most = most
        self._computing = computing or computing_below
        self._beyond = 0
        self._inside = 0
        self._queued = 0
        self._watch: asyncio.Task[None] | None = None

    async def acquire(self) -> Literal[True]:
        self._queued += 1
        if self.locked() and self._most > self._cores and (self._watch is None or self._watch.done()):
            self._watch = asyncio.create_task(self._look())
        try:
            await super().acquire()
        finally:
            self._queued -= 1
        self._inside += 1
        return True

    def release(self) -> None:
        self._inside -= 1
        if self._beyond:
            # Its place was one more than there are cores.
            self._beyond -= 1
        else:
            super().release()

    async def _look(self) -> None:
        """Let others in while few of those inside compute: more each time, as long as nothing changes."""
        looks, more = 0, 1
        while self._queued:
            await asyncio.sleep(_LOOK_SECONDS)
            busy = await asyncio.to_thread(self._computing)
            if busy is None:
                return
            looks = looks + 1 if busy < self._cores else 0
            if looks == 0:
                more = 1
            if looks < _LOOKS:
                continue
            for _ in range(min(more, self._queued, self._most - self._inside)):
                self._beyond += 1
                super().release()
            looks, more = 0, more * 2


def computing_below() -> int | None:
    """How many processes below this one run or wait for a core; `None` where that cannot be known."""
    try:
        found = {int(each.name): each for each in _PROC.iterdir() if each.name.isdigit()}
    except OSError:
        return None
    stats = {number: stat for number, path in found.items() if (stat := _stat(path)) is not None}
    below, known = {os.getpid()}, -1
    while known != len(below):
        known = len(below)
        below |= {number for number, stat in stats.items() if int(stat[_PARENT]) in below}
    return sum(_computes(found[number], stats[number]) for number in below - {os.getpid()} if number in stats)


def _computes(path: Path, stat: list[str]) -> bool:
    if stat[_STATE] == "R" or int(stat[_THREADS]) == 1:
        return stat[_STATE] == "R"
    return any(each[_STATE] == "R" for each in _threads(path))


def _threads(path: Path) -> Iterator[list[str]]:
    try:
        threads = list((path / "task").iterdir())
    except OSError:
        return
    for each in threads:
        if (stat := _stat(each)) is not None:
            yield stat


def _stat(path: Path) -> list[str] | None:
    """The words of its line behind the name, which may hold anything."""
    try:
        return decoded((path / "stat").read_bytes()).rpartition(")")[2].split()
    except OSError:
        return None


DAY_MS = 86_400_000
# Calls that only wait, for a model, a web service or a process that sleeps, need no core of their own.
_MOST_MODELS = 64
_MOST_WAITING = 256
_HEARD = {"stderr": "output", "token": "token"}


@dataclass(frozen=True, slots=True)
class StepAnswers:
    """See `tools.call.Answers`: the answers to one try at a step. What a person lets be done again is asked again."""

    job: JobContext
    step: str
    number: int

    def find(self, prompt: str) -> ToolResult | None:
        with self.job.ledger.read() as tx:
            found = find_step_result(tx, self._key(prompt), not_before=0)
        if found is None:
            return None
        try:
            return ToolResult(read_value(self.job.ledger.artifacts, found.value), ToolUse(**found.metrics))
        except NotFound:
            return None

    def keep(self, tx: Transaction, prompt: str, called: ToolResult) -> None:
        kept = keep_value(
            tx, self.job.ledger.artifacts, called.value, run_id=self.job.run_id, name=f"answer-{self.step}"
        )
        keep_step_result(tx, self._key(prompt), kept, asdict(called.use))

    def _key(self, prompt: str) -> str:
        place = ["answer 1", self.job.run_id, self.job.job.id, self.step, self.number, prompt]
        return hashlib.sha256(to_json(place).encode()).hexdigest()


class LedgerCaller:
    """See `flowkit.StepCaller`."""

    def __init__(self, job: JobContext, plan: RunPlan, journal: LedgerJournal) -> None:
        self._job = job
        self._plan = plan
        self._journal = journal
        settings = job.runtime.settings.workflows
        self._oldest_ms = settings.cache_days * DAY_MS
        most = settings.concurrency
        self._computing = Cores(most or os.cpu_count() or 1, most or _MOST_WAITING)
        self._waiting = asyncio.Semaphore(most or _MOST_WAITING)
        self._models = asyncio.Semaphore(most or _MOST_MODELS)
        self.offering = Offering(job, self._computing, self._waiting) if plan.spread else None
        self.servers = KeptServers()
        self.awaited: dict[str, int] = {}
        """The approvals that nobody has decided yet, by the names of their steps."""

    def room(self, call: StepCall) -> AbstractAsyncContextManager[object]:
        """Steps that compute share the cores; questions to models and what only waits have limits of their own. What is
        offered to others needs no room, and what nodes do none of this machine's cores."""
        work = self._plan.work(call)
        if work.tool is not None and is_placed(work.tool, self._job.runtime.settings):
            return self._waiting
        if self.offering is not None and work.computes and call.lines is None:
            # What another worker does is heard of only at its end.
            return self.offering.room(call.name)
        if work.computes:
            return self._computing
        return self._models if work.asks_model else self._waiting

    async def call(self, call: StepCall) -> Result:
        if call.step.step_type is StepType.APPROVAL:
            return await self._ask(call)
        work = self._plan.work(call)
        key = self._plan.cache_key(call, work, self._job.runtime.settings)
        known = None if key is None else await asyncio.to_thread(self._remembered, key)
        if known is not None:
            return known
        try:
            called = await self._carry_out(call, work)
        except ToolCallFailed as failed:
            if exhausted(failed) is not None:
                raise
            self._record(call, work.fixed, failed.use, error=str(failed))
            raise StepFailed(
                str(failed),
                final=failed.final,
                metrics=use_metrics(failed.use),
                hint=failed.hint,
                blocks=failed.blocks,
            ) from failed
        self._check(called.value)
        self._record(call, work.fixed, called.use, called=called)
        metrics = metrics_of(called)
        if key is not None and not called.simulated:
            self._journal.note(lambda tx: self._remember(tx, call.name, key, called.value, metrics))
        return Result(called.value, metrics)

    async def sub_workflow(self, call: StepCall) -> WorkflowSpec:
        # All of them were put in their places before the run began, so that nothing can change under it.
        raise StepFailed(f"the workflow {call.step.workflow_path} is not part of this run", final=True)

    async def around(self, call: StepCall, inside: Inside) -> Result | StepError | None:
        fixed = self._plan.held_tool(call)
        if fixed is None:
            return await inside(call.values)
        if not self._journal.is_resumed(call.name):
            # Otherwise it was counted when it began.
            await self._reserve(fixed)
        try:
            called = await call_held(fixed.tool, call, inside, self._occasion(call))
        except StepHeld:
            return None
        except ToolCallFailed as failed:
            self._record(call, fixed, failed.use, error=str(failed))
            raise StepFailed(
                str(failed), final=failed.final, metrics=held_metrics(failed.use), hint=failed.hint
            ) from failed
        self._record(call, fixed, called.use, called=called)
        return Result(called.value, held_metrics(called.use, simulated=called.simulated))

    def fallback(self, call: StepCall) -> str | None:
        return self._plan.fallback(call)

    async def _carry_out(self, call: StepCall, work: StepWork) -> ToolResult:
        if work.fixed is not None:
            await self._reserve(work.fixed)
        occasion = self._occasion(call)
        if work.tool is not None and work.tool.workflow is not None:
            # In the place of another tool; where a step names it, its steps are those of the run.
            occasion = with_workflows(occasion)
        if self.offering is not None and self.offering.is_offered(call.name):
            return await self.offering.carry_out(call, lambda: work.carry_out(call, occasion))
        return await work.carry_out(call, occasion)

    async def _reserve(self, fixed: FixedTool) -> None:
        """Count the call, if the tool may be called now."""

        def count() -> None:
            with self._job.write() as tx:
                check_constraints(tx, fixed.tool_id, fixed.tool)

        if fixed.tool.constraints.max_calls_per_hour is None:
            return
        try:
            await asyncio.to_thread(count)
        except ToolRateLimited as error:
            raise StepFailed(str(error), hint=error.hint) from error

    def _occasion(self, call: StepCall) -> Occasion:
        return Occasion(
            self._job.runtime,
            spender=Spender(self._journal.attempt_of(call.name), self._job.run_id, self._plan.project_id),
            actor=self._job.process_id,
            seconds=call.step.timeout,
            folder=self._plan.folder,
            servers=self.servers,
            answers=StepAnswers(self._job, call.name, call.number),
            listen=lambda kind, data: self._journal.say(call.name, _HEARD[kind], str(data["text"])),
            give_line=None if call.lines is None else call.lines.give,
        )

    async def _ask(self, call: StepCall) -> Result:
        """What a person has decided; until then the step is held."""
        question = call.prompt or call.step.description
        schema = call.step.answer_schema
        asked = {"values": dict(call.values)} | ({} if schema is None else {ANSWER_SCHEMA: dict(schema)})
        with self._job.write() as tx:
            approval = request_approval(
                tx,
                f"workflow:{self._job.run_id}:{call.name}",
                subject=f"step {call.name} of {self._plan.spec.workflow_id}",
                question=question,
                data=asked,
                run_id=self._job.run_id,
            )
        match approval.status:
            case ApprovalStatus.PENDING:
                self.awaited[call.name] = approval.id
                raise StepHeld(f"waits for approval {approval.id}: {question}")
            case ApprovalStatus.APPROVED if schema is not None:
                return Result(approval.answer)
            case ApprovalStatus.APPROVED:
                return Result({"approved": True, "comment": approval.comment, "by": approval.decided_by})
        said = f": {approval.comment}" if approval.comment else ""
        raise StepFailed(f"{approval.status} by {approval.decided_by}{said}", final=True)

    def _remembered(self, key: str) -> Result | None:
        with self._job.ledger.read() as tx:
            found = find_step_result(tx, key, not_before=tx.now - self._oldest_ms)
        if found is None:
            return None
        try:
            value = read_value(self._job.ledger.artifacts, found.value)
        except NotFound:
            return None
        return Result(value, found.metrics, cached=True)

    def _remember(self, tx: Transaction, name: str, key: str, value: Any, metrics: Mapping[str, Any]) -> None:
        kept = keep_value(tx, self._job.ledger.artifacts, value, run_id=self._job.run_id, name=name)
        keep_step_result(tx, key, kept, metrics)

    def _check(self, value: Any) -> None:
        try:
            to_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise StepFailed(f"gave something that is not JSON: {error}", final=True) from error

    def _record(
        self,
        call: StepCall,
        fixed: FixedTool | None,
        use: ToolUse,
        *,
        called: ToolResult | None = None,
        error: str | None = None,
    ) -> None:
        if fixed is not None and fixed.tool.track_usage:
            row = call_row(
                fixed.tool_id,
                fixed.version_id,
                call.values,
                use,
                called=called,
                error=error,
                run_id=self._job.run_id,
                step=call.name,
            )
            self._journal.note_call(row)
