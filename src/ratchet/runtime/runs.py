"""Runs as durable work: start, pause, resume, cancel.

A run is carried by a job with the run's own key, so at most one process works on it. The job reads the ledger and goes
on from there; that is all it takes to resume after a pause or a crash.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, Outcome, RunId, RunStatus, StepStatus
from ratchet.ledger import Run, Transaction, change_run, change_step
from ratchet.ledger.runs import close_attempt, create_run, get_run, list_steps
from ratchet.ledger.tables import attempts
from ratchet.runtime.job import DEFAULT_QUEUE, FINAL, run_key
from ratchet.runtime.job_rows import list_jobs
from ratchet.runtime.runtime import Runtime


def start_run(
    tx: Transaction,
    runtime: Runtime,
    job_kind: str,
    *,
    kind: str,
    name: str,
    spec: Any = None,
    project_id: int | None = None,
    simulated: bool = False,
    queue: str = DEFAULT_QUEUE,
) -> RunId:
    """Create a run and the job that carries it, in one transaction."""
    run_id = create_run(tx, kind, name, spec=spec, project_id=project_id, simulated=simulated)
    runtime.enqueue(tx, job_kind, run_id=run_id, key=run_key(run_id), queue=queue)
    return run_id


def enter_run(tx: Transaction, run_id: int) -> Run:
    """The run, running. Raises `Conflict` when it may not run now: it is paused, blocked or has ended."""
    run = get_run(tx, run_id)
    if run.status in (RunStatus.PENDING, RunStatus.PLANNED):
        change_run(tx, run_id, RunStatus.RUNNING)
    elif run.status is not RunStatus.RUNNING:
        raise Conflict(f"run {run_id} is {run.status}; only a pending, planned or running run can go on")
    return run


def complete_run(tx: Transaction, run_id: int, result: Any) -> None:
    """End a running run with its result."""
    change_run(tx, run_id, RunStatus.COMPLETED, expected=(RunStatus.RUNNING,), result=result)


def pause_run(tx: Transaction, runtime: Runtime, run_id: int, *, reason: str = "paused on request") -> None:
    """Pause a run: its worker is asked to stop, what it has recorded stays."""
    if get_run(tx, run_id).status is RunStatus.PAUSED:
        return
    change_run(tx, run_id, RunStatus.PAUSED, reason=reason)
    _stop_jobs(tx, runtime, run_id, reason)


def resume_run(tx: Transaction, runtime: Runtime, run_id: int) -> None:
    """Go on with a paused or blocked run."""
    change_run(
        tx, run_id, RunStatus.RUNNING, expected=(RunStatus.PAUSED, RunStatus.BLOCKED), reason="resumed"
    )
    last = list_jobs(tx, run_id=run_id, limit=1)
    if not last:
        raise Conflict(f"run {run_id} was never started as work, so there is nothing to resume")
    runtime.enqueue(
        tx,
        last[0].kind,
        last[0].payload,
        run_id=run_id,
        key=run_key(run_id),
        queue=last[0].queue,
        priority=last[0].priority,
    )


def cancel_run(
    tx: Transaction, runtime: Runtime, run_id: int, *, reason: str = "cancelled on request"
) -> None:
    """Cancel a run for good, with everything in it that has not ended."""
    if get_run(tx, run_id).status is RunStatus.CANCELLED:
        return
    change_run(tx, run_id, RunStatus.CANCELLED, reason=reason)
    _stop_jobs(tx, runtime, run_id, reason)
    open_attempts = sa.select(attempts.c.id).where(attempts.c.run_id == run_id, attempts.c.ended_at.is_(None))
    for attempt_id in tx.connection.execute(open_attempts).scalars().all():
        close_attempt(tx, attempt_id, Outcome.ERROR, reason)
    for step in list_steps(tx, run_id):
        if not step.status.final:
            change_step(tx, step.id, StepStatus.CANCELLED, reason=reason)


def _stop_jobs(tx: Transaction, runtime: Runtime, run_id: int, reason: str) -> None:
    for job in list_jobs(tx, run_id=run_id, limit=100):
        if job.status not in FINAL:
            runtime.jobs.request_stop(tx, job.id, reason)
