"""Executes a run of a workflow from its last recorded step to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from ratchet.flowkit.execution import Executed
from ratchet.flowkit.executor import execute
from ratchet.kernel import RunStatus, StateChanged, Waiting
from ratchet.ledger import Run, Step, Transaction, change_run
from ratchet.ledger.questions import still_pending
from ratchet.ledger.runs import list_steps, status_of_run
from ratchet.ledger.workflows import remove_step_results
from ratchet.runtime import JobContext, complete_run, enter_run
from ratchet.workflows.evolution.requests import evolve_what_declined
from ratchet.workflows.memory import remember_failed_run
from ratchet.workflows.runs.caller import DAY_MS, LedgerCaller
from ratchet.workflows.runs.journal import LedgerJournal
from ratchet.workflows.runs.plan import RunPlan, load_plan
from ratchet.workflows.runs.results import keep_value

_FORGOTTEN_AT_ONCE = 1_000


async def run_workflow(job: JobContext) -> object:
    """Run what is left of a workflow. Raises `Waiting` when it is blocked until a person decides."""
    try:
        return await _run(job)
    except StateChanged:
        # The run may have been ended, with all its steps, before this job was stopped.
        with job.ledger.read() as tx:
            status = status_of_run(tx, job.run_id)
        if status is RunStatus.RUNNING:
            raise
        return {"run": job.run_id, "status": str(status)}


async def _run(job: JobContext) -> object:
    while True:
        run, plan, steps = await asyncio.to_thread(_enter, job)
        journal = LedgerJournal(job, steps, pure=plan.is_pure)
        caller = LedgerCaller(job, plan, journal)
        async with contextlib.aclosing(caller.servers), _listening(caller), journal.writing():
            done = await execute(
                plan.spec, plan.inputs, caller, journal=journal, room=caller.room, guarded=False
            )
        if done.status != "held":
            ended = await asyncio.to_thread(_end, job, run, journal, done)
            await asyncio.to_thread(_learn, job, run, plan, done)
            return ended
        if await asyncio.to_thread(_wait, job, run, caller.awaited, done):
            raise Waiting(f"run {run.id} waits for a person")


def _enter(job: JobContext) -> tuple[Run, RunPlan, list[Step]]:
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
        return run, load_plan(tx, run), list_steps(tx, run.id)


@contextlib.asynccontextmanager
async def _listening(caller: LedgerCaller) -> Any:
    if caller.offering is None:
        yield
        return
    async with caller.offering.listening():
        yield


def _end(job: JobContext, run: Run, journal: LedgerJournal, done: Executed) -> dict[str, Any]:
    oldest = job.runtime.settings.workflows.cache_days * DAY_MS
    with job.write() as tx:
        journal.end(tx)
        remove_step_results(tx, before=tx.now - oldest, limit=_FORGOTTEN_AT_ONCE)
        result = {
            "status": done.status,
            "error": done.error,
            "outputs": _kept_outputs(tx, job, run, done.outputs),
        }
        if done.status == "completed":
            complete_run(tx, run.id, result)
        else:
            change_run(tx, run.id, RunStatus.FAILED, reason=done.error, result=result)
        return {"run": run.id, "status": done.status}


def _learn(job: JobContext, run: Run, plan: RunPlan, done: Executed) -> None:
    """What a run leaves for later ones: a failure to be remembered, tools that need to be better."""
    if done.status == "failed":
        remember_failed_run(job.runtime, run, plan.spec, done)
    used = {fixed.tool_id for fixed in plan.tools.values()}
    evolve_what_declined(job.runtime, used, actor=job.process_id)


def _kept_outputs(tx: Transaction, job: JobContext, run: Run, outputs: Mapping[str, Any]) -> dict[str, Any]:
    artifacts = job.ledger.artifacts
    return {
        name: keep_value(tx, artifacts, value, run_id=run.id, name=f"output-{name}")
        for name, value in outputs.items()
    }


def _wait(job: JobContext, run: Run, awaited: Mapping[str, int], done: Executed) -> bool:
    """Block the run until a person decides, unless one has decided just now, or changes what keeps steps from going
    on."""
    reasons = []
    if awaited:
        approvals = ", ".join(map(str, awaited.values()))
        reasons.append(f"waits for {'approval' if len(awaited) == 1 else 'approvals'} {approvals}")
    # Many items of a list may be held for the same reason.
    refused: dict[str, str] = {}
    for name, record in done.steps.items():
        if record.status == "held" and record.error and name not in awaited:
            refused.setdefault(record.error, name)
    reasons += [f"step {name}: {error}" for error, name in refused.items()]
    with job.write() as tx:
        if not all(still_pending(tx, approval_id) for approval_id in awaited.values()):
            return False
        change_run(tx, run.id, RunStatus.BLOCKED, reason="; ".join(reasons))
    return True
