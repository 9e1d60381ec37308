"""Offering calls to other workers.

A call that finds no room here becomes a job, which any worker of the fleet may take. When room comes free before one
has, the job is taken back and the call done here: a fleet that is busy, or a single worker, never waits for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ratchet.flowkit.execution import StepCall
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import RunStatus
from ratchet.ledger import ArtifactStore, EventFilter, Spender, Transaction, follow_async
from ratchet.ledger.events import last_id
from ratchet.ledger.runs import get_run
from ratchet.runtime import Job, JobContext, JobStatus
from ratchet.runtime.job import IDLE, find_once, get_job, lock_job
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult, ToolUse
from ratchet.workflows.jobs import STEP
from ratchet.workflows.runs.plan import load_plan
from ratchet.workflows.runs.results import keep_value, read_value

DONE = "workflow.step_done"
_LOOK_SECONDS = 5.0
_ENDINGS = frozenset({DONE, "job.failed", "job.cancelled"})


def described(tx: Transaction, artifacts: ArtifactStore, call: StepCall, *, run_id: int) -> dict[str, Any]:
    """The call as the payload of a job."""
    return {
        "name": call.name,
        "workflow": write_spec(WorkflowSpec(call.workflow.workflow_id, steps=(call.step,))),
        "values": keep_value(tx, artifacts, dict(call.values), run_id=run_id, name=call.name),
        "tool": call.tool,
        "prompt": call.prompt,
        "number": call.number,
    }


async def do_step(job: JobContext) -> object:
    """Carry out a call of a run that another worker carries."""
    artifacts = job.ledger.artifacts
    with job.ledger.read() as tx:
        run = get_run(tx, job.run_id)
        if run.status is not RunStatus.RUNNING:
            return {"failed": f"the run is {run.status}", "final": True}
        plan = load_plan(tx, run)
    given = job.payload
    workflow = read_spec(given["workflow"])
    call = StepCall(
        given["name"],
        workflow.steps[0],
        workflow,
        read_value(artifacts, given["values"]),
        given["tool"],
        given["prompt"],
        given["number"],
    )
    occasion = Occasion(
        job.runtime,
        spender=Spender(run_id=run.id, project_id=run.project_id),
        actor=job.process_id,
        seconds=call.step.timeout,
        folder=plan.folder,
    )
    try:
        called = await plan.work(call).carry_out(call, occasion)
    except ToolCallFailed as failed:
        with job.write() as tx:
            return _announce(tx, job, _failed(failed))
    with job.write() as tx:
        kept = keep_value(tx, artifacts, called.value, run_id=run.id, name=call.name)
        return _announce(tx, job, {**asdict(called), "value": kept})


def understood(artifacts: ArtifactStore, result: Mapping[str, Any]) -> ToolResult:
    """The result that `do_step` reported. Raises `ToolCallFailed` if the call had failed."""
    use = ToolUse(**result.get("use", {}))
    if "failed" in result:
        raise ToolCallFailed(
            result["failed"],
            hint=result.get("hint"),
            use=use,
            said=result.get("said", ""),
            final=result["final"],
        )
    return ToolResult(read_value(artifacts, result["value"]), use, result["said"], result["simulated"])


def _failed(failed: ToolCallFailed) -> dict[str, Any]:
    return {
        "failed": str(failed),
        "hint": failed.hint,
        "use": asdict(failed.use),
        "said": failed.said,
        "final": failed.final,
    }


def _announce(tx: Transaction, job: JobContext, result: dict[str, Any]) -> dict[str, Any]:
    """The result is in the event as well: that arrives before the end of the job is recorded."""
    tx.event(DONE, run_id=job.run_id, job_id=job.job.id, data=result)
    return result


@dataclass(slots=True)
class _Offer:
    job_id: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    result: Any = None


class Offering:
    """The calls of one run that lie in a queue or run elsewhere."""

    def __init__(self, job: JobContext, here: asyncio.Semaphore, at_once: asyncio.Semaphore) -> None:
        self._job = job
        self._here = here
        self._at_once = at_once
        self._offered: set[str] = set()
        self._offers: dict[int, _Offer] = {}

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear what becomes of offers while the block runs."""
        with self._job.ledger.read() as tx:
            after = last_id(tx.connection)
        listener = asyncio.create_task(self._listen(after))
        try:
            yield
        finally:
            listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listener

    @contextlib.asynccontextmanager
    async def room(self, name: str) -> AsyncIterator[None]:
        """Room here if some is free right now; else the call will be offered."""
        if not self._here.locked():
            async with self._here:
                yield
            return
        async with self._at_once:
            self._offered.add(name)
            try:
                yield
            finally:
                self._offered.discard(name)

    def is_offered(self, name: str) -> bool:
        return name in self._offered

    async def carry_out(self, call: StepCall, do_here: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """The result of the call, on whichever worker. Raises `ToolCallFailed` as a call here does."""
        offer = await asyncio.to_thread(self._offer, call)
        try:
            if await self._taken_back(offer):
                try:
                    return await do_here()
                finally:
                    self._here.release()
            result = await self._result(offer)
        finally:
            self._offers.pop(offer.job_id, None)
        if result is not None:
            return understood(self._job.ledger.artifacts, result)
        # The job was cancelled; the call is still wanted.
        async with self._here:
            return await do_here()

    async def _taken_back(self, offer: _Offer) -> bool:
        """Wait until there is room here, which is then held, or until the offer has ended or cannot be taken back."""
        free = asyncio.create_task(self._here.acquire())
        ended = asyncio.create_task(offer.ended.wait())
        taken = False
        try:
            await asyncio.wait((free, ended), return_when=asyncio.FIRST_COMPLETED)
            taken = not ended.done() and await asyncio.to_thread(self._withdraw, offer)
        finally:
            ended.cancel()
            if not taken:
                free.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await free
                    self._here.release()
        return taken

    async def _result(self, offer: _Offer) -> Any:
        """What the job came to, when it has ended; nothing if it was cancelled."""
        while not offer.ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await offer.ended.wait()
            # An end that came before this process listened is only in the row.
            if not offer.ended.is_set():
                job = await asyncio.to_thread(self._look, offer)
                if job.status.final:
                    break
        if offer.result is not None:
            return offer.result
        job = await asyncio.to_thread(self._look, offer)
        if job.status is JobStatus.FAILED:
            return {"failed": job.error or "failed", "final": False}
        return None if job.status is JobStatus.CANCELLED else job.result

    def _look(self, offer: _Offer) -> Job:
        with self._job.ledger.read() as tx:
            return get_job(tx, offer.job_id)

    def _offer(self, call: StepCall) -> _Offer:
        """Enqueue the call, or find the job that an earlier process of this run has enqueued for it."""
        once = f"workflow:{self._job.run_id}:{self._job.job.id}:{call.name}:{call.number}"
        with self._job.write() as tx:
            found = find_once(tx, once)
            if found is None:
                payload = described(tx, self._job.ledger.artifacts, call, run_id=self._job.run_id)
                job_id = self._job.runtime.enqueue(
                    tx,
                    STEP,
                    payload,
                    run_id=self._job.run_id,
                    queue=self._job.job.queue,
                    priority=self._job.job.priority,
                    once=once,
                )
                assert job_id is not None
                tx.event("step.offered", run_id=self._job.run_id, job_id=job_id, data={"name": call.name})
            else:
                job_id = found.id
            offer = self._offers[job_id] = _Offer(job_id)
        if found is not None and found.status.final:
            offer.ended.set()
        return offer

    def _withdraw(self, offer: _Offer) -> bool:
        """Take the job back, if no worker has begun it."""
        with self._job.write() as tx:
            # Locked before it is looked at: one that a worker begins this moment must not be stopped.
            job = lock_job(tx, offer.job_id)
            if job is None or job.status not in IDLE:
                return False
            self._job.runtime.jobs.request_stop(tx, offer.job_id, "there was room for it here")
            return True

    async def _listen(self, after: int) -> None:
        where = EventFilter(run_id=self._job.run_id)
        async for event in follow_async(self._job.ledger, after, where=where):
            if event.type in _ENDINGS and event.job_id in self._offers:
                offer = self._offers[event.job_id]
                offer.result = event.data if event.type == DONE else None
                offer.ended.set()
