"""Runs as durable work: start, pause, resume, cancel, and resume after a person's answer.

A run is carried by a job with the run's own key, so at most one process works on it. The job reads the ledger and goes
on from there; that is all it takes to resume after a pause or a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, Outcome, RunId, RunStatus, StepStatus, Waiting
from ratchet.ledger import Event, EventFilter, Ledger, Run, Transaction, change_run, change_step, follow
from ratchet.ledger.events import last_id
from ratchet.ledger.questions import Approval, decide_approval
from ratchet.ledger.runs import close_attempt, create_run, get_run, list_steps
from ratchet.ledger.tables import attempts
from ratchet.runtime.job import (
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    Job,
    find_once,
    last_carrier,
    list_jobs,
    lock_job,
    run_key,
    unfinished_jobs,
)
from ratchet.runtime.runtime import Runtime

_STANDS = {f"run.{status}" for status in RunStatus if status.stands}

if TYPE_CHECKING:
    from ratchet.runtime.runtime import Runtime

_STANDS = {f"run.{status}" for status in RunStatus if status.stands}


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
    line: str | None = None,
    priority: int = DEFAULT_PRIORITY,
    once: str | None = None,
) -> RunId:
    """Create a run and the job that carries it, in one transaction. Runs of one `line` come one after the other, and of
    one `once` there is a single one: asked for again, it is the run that there is."""
    there = None if once is None else find_once(tx, once)
    if there is not None and there.run_id is not None:
        return RunId(there.run_id)
    run_id = create_run(tx, kind, name, spec=spec, project_id=project_id, simulated=simulated)
    key = run_key(run_id, line)
    runtime.enqueue(tx, job_kind, run_id=run_id, key=key, queue=queue, priority=priority, once=once)
    return run_id


def enter_run(tx: Transaction, run_id: int) -> Run:
    """The run, running. Raises `Waiting` when it is paused or blocked, and `Conflict` when it has ended."""
    run = get_run(tx, run_id)
    if run.status in (RunStatus.PENDING, RunStatus.PLANNED):
        change_run(tx, run_id, RunStatus.RUNNING)
    elif run.status in (RunStatus.PAUSED, RunStatus.BLOCKED):
        raise Waiting(f"run {run_id} is {run.status}", hint=f"resume it: ratchet runs resume {run_id}")
    elif run.status is not RunStatus.RUNNING:
        raise Conflict(
            f"run {run_id} is {run.status}; only a pending, planned or running run can be worked on",
            hint="start the same work again as a new run",
        )
    return run


def complete_run(tx: Transaction, run_id: int, result: Any) -> None:
    """End a running run with its result."""
    change_run(tx, run_id, RunStatus.COMPLETED, expected=(RunStatus.RUNNING,), result=result)


def pause_run(tx: Transaction, runtime: Runtime, run_id: int, *, reason: str = "paused on request") -> None:
    """Pause a run as its flow does: its worker is asked to stop, what it has recorded stays.

    Pausing it again changes nothing.
    """
    run = get_run(tx, run_id)
    pause = runtime.kinds.of_run(tx, run).pause or pause_any
    pause(tx, runtime, run, reason)


def resume_run(tx: Transaction, runtime: Runtime, run_id: int, *, reason: str = "resumed") -> None:
    """Resume a paused or blocked run as its flow does. Raises `Conflict` for any other."""
    run = get_run(tx, run_id)
    resume = runtime.kinds.of_run(tx, run).resume or resume_any
    resume(tx, runtime, run, reason)


def cancel_run(
    tx: Transaction, runtime: Runtime, run_id: int, *, reason: str = "cancelled on request"
) -> None:
    """Cancel a run for good as its flow does, with everything in it that has not ended.

    Cancelling it again changes nothing.
    """
    run = get_run(tx, run_id)
    cancel = runtime.kinds.of_run(tx, run).cancel or cancel_any
    cancel(tx, runtime, run, reason)


def pause_any(tx: Transaction, runtime: Runtime, run: Run, reason: str) -> None:
    """What pausing is for a run of any kind; a flow that does more calls it too."""
    halt_run(tx, runtime, run.id, RunStatus.PAUSED, reason=reason)


def resume_any(tx: Transaction, runtime: Runtime, run: Run, reason: str) -> None:
    """What resuming is for a run of any kind."""
    if run.status.final:
        raise Conflict(
            f"run {run.id} is {run.status}; only a paused or blocked one can be resumed",
            hint="what has ended stays as it is: start the same work again",
        )
    requeue_run(tx, runtime, run.id, reason=reason)


def cancel_any(tx: Transaction, runtime: Runtime, run: Run, reason: str) -> None:
    """What cancelling is for a run of any kind."""
    lock_jobs(tx, run.id)
    if get_run(tx, run.id).status is not RunStatus.CANCELLED:
        end_run(tx, runtime, run.id, RunStatus.CANCELLED, reason=reason)


def halt_run(tx: Transaction, runtime: Runtime, run_id: int, to: RunStatus, *, reason: str) -> None:
    """Pause or block a run. One that is so already is left as it is."""
    carriers = lock_jobs(tx, run_id)
    if get_run(tx, run_id).status is to:
        return
    change_run(tx, run_id, to, reason=reason)
    for job in carriers:
        runtime.jobs.request_stop(tx, job.id, reason)


def requeue_run(
    tx: Transaction,
    runtime: Runtime,
    run_id: int,
    *,
    to: RunStatus = RunStatus.RUNNING,
    reason: str = "resumed",
) -> None:
    """Queue a paused or blocked run again; `to` planning for one that was stopped while it was planned."""
    change_run(tx, run_id, to, expected=(RunStatus.PAUSED, RunStatus.BLOCKED), reason=reason)
    carry_again(tx, runtime, run_id)


def carry_again(tx: Transaction, runtime: Runtime, run_id: int) -> None:
    """Queue a job that carries the run once more, for what has changed. Raises `Conflict` if none ever did."""
    last = last_carrier(tx, run_id)
    if last is None:
        raise Conflict(
            f"run {run_id} was never started as work, so there is nothing to resume",
            hint=f"start it; `ratchet runs show {run_id}` shows what it is",
        )
    runtime.enqueue(
        tx,
        last.kind,
        last.payload,
        run_id=run_id,
        key=last.key,
        queue=last.queue,
        priority=last.priority,
    )


def end_run(tx: Transaction, runtime: Runtime, run_id: int, *through: RunStatus, reason: str) -> None:
    """End a run from outside, through these statuses; what is in it and has not ended is cancelled."""
    carriers = lock_jobs(tx, run_id)
    for status in through:
        change_run(tx, run_id, status, reason=reason)
    for job in carriers:
        runtime.jobs.request_stop(tx, job.id, reason)
    open_attempts = sa.select(attempts.c.id).where(attempts.c.run_id == run_id, attempts.c.ended_at.is_(None))
    for attempt_id in tx.connection.execute(open_attempts).scalars().all():
        close_attempt(tx, attempt_id, Outcome.ERROR, reason)
    for step in list_steps(tx, run_id):
        if not step.status.final:
            change_step(tx, step.id, StepStatus.CANCELLED, reason=reason)


def lock_jobs(tx: Transaction, run_id: int) -> list[Job]:
    """The unfinished jobs of a run. They are locked before the run: who works on one holds it, and may want the run."""
    locked = [lock_job(tx, job.id) for job in unfinished_jobs(tx, run_id)]
    return [job for job in locked if job is not None and not job.status.final]


def answer_approval(
    tx: Transaction,
    runtime: Runtime,
    approval_id: int,
    *,
    approved: bool,
    by: str,
    comment: str | None = None,
    answer: Any = None,
) -> Approval:
    """Answer an approval and resume its run, if it was blocked, in one transaction.

    A paused run stays paused: it finds the answer when somebody resumes it. Raises `NotFound`, `Conflict` and
    `Misuse` as `decide_approval` does.
    """
    approval = decide_approval(tx, approval_id, approved=approved, by=by, comment=comment, answer=answer)
    if approval.run_id is not None:
        blocked = get_run(tx, approval.run_id).status is RunStatus.BLOCKED
        if blocked and list_jobs(tx, run_id=approval.run_id, limit=1):
            resume_run(tx, runtime, approval.run_id)
    return approval


def follow_run(
    ledger: Ledger, run_id: int, hear: Callable[[Event], None], *, stop: threading.Event | None = None
) -> None:
    """Tell of each event of a run from now on, until it has ended, is paused or blocked."""
    with ledger.read() as tx:
        after = last_id(tx.connection)
        if get_run(tx, run_id).status.stands:
            return
    for event in follow(ledger, after, where=EventFilter(run_id=run_id), stop=stop):
        hear(event)
        if event.type in _STANDS:
            with ledger.read() as tx:
                if get_run(tx, run_id).status.stands:
                    return
