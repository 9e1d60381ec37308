"""`ratchet queue …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.numbers import COUNT, ID
from ratchet.cli.opening import existing_ledger, existing_runtime
from ratchet.cli.output import confirm, show_list, show_one
from ratchet.cli.records import record
from ratchet.cli.times import age, span
from ratchet.cli.words import compact
from ratchet.runtime import Job, JobStatus, Kinds, QueueState, get_job, list_jobs, list_queues
from ratchet.runtime.queues import configured_rules

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.runtime.limits import QueueRule

_OPEN = (JobStatus.QUEUED, JobStatus.SCHEDULED, JobStatus.WAITING, JobStatus.STARTED)
_ENDED = (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED)


@command(
    "list",
    examples=["ratchet queue list", "ratchet queue list --json | jq '.[].counts.failed'"],
    see=["queue jobs", "processes"],
)
@click.pass_obj
def list_(session: Session) -> None:
    """List queues and how many jobs they hold.

    There is always the queue `default`; others come from the settings, as [queues.NAME] with their limits.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_queues(tx, _rules(session))
    show_list(
        session,
        found,
        {
            "queue": lambda queue: queue.name,
            "state": lambda queue: "paused" if queue.paused else "open",
            "limits": _limits,
            **{str(status): _counting(status) for status in (*_OPEN, *_ENDED)},
        },
        record=_queue_record,
        empty="There are no queues.",
    )


@command(
    examples=["ratchet queue jobs", "ratchet queue jobs --status failed -n 5", "ratchet queue jobs --run 7"],
    see=["queue show"],
)
@click.option(
    "--status", type=click.Choice([str(status) for status in JobStatus]), help="Only in this status."
)
@click.option("--queue", metavar="QUEUE", help="Only of this queue.")
@click.option("--run", "run_id", type=ID, metavar="RUN", help="Only of this run.")
@click.option("--limit", "-n", type=COUNT, default=50, show_default=True, help="At most so many.")
@click.option("--before", type=ID, metavar="ID", help="Only older than this job: the next page.")
@click.pass_obj
def jobs(session: Session, /, status: str | None, **wanted: Any) -> None:
    """List jobs, newest first.

    A job is what a worker takes on. `took` counts on while it is under way.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_jobs(tx, status=JobStatus(status) if status else None, **wanted)
    show_list(
        session,
        found,
        {
            "job": lambda job: job.id,
            "kind": lambda job: job.kind,
            "queue": lambda job: job.queue,
            "status": lambda job: job.status,
            "priority": _priority,
            "tries": _tries,
            "run": lambda job: job.run_id,
            "key": lambda job: job.key,
            "created": lambda job: age(job.created_at),
            "took": lambda job: span(job.started_at, job.ended_at),
            "error": lambda job: job.error,
        },
        record=record,
        empty="No such jobs. `ratchet demo` makes some, and so does every run.",
    )


@command(examples=["ratchet queue show 12"])
@click.argument("job_id", metavar="JOB", type=ID, help="The number of a job.")
@click.pass_obj
def show(session: Session, job_id: int) -> None:
    """Show one job.

    Where it stands, how often it was tried, which process has it, and its error if it has failed.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        job = get_job(tx, job_id)
    fields = {
        "job": job.id,
        "kind": job.kind,
        "queue": job.queue,
        "status": job.status,
        "stop asked": job.stop,
        "run": job.run_id,
        "key": job.key,
        "priority": _priority(job),
        "tries": _tries(job),
        "recoveries": job.recoveries or None,
        "process": job.process_id,
        "created": age(job.created_at),
        "due": age(job.due_at) if not job.status.final else None,
        "started": age(job.started_at),
        "took": span(job.started_at, job.ended_at),
        "payload": compact(job.payload),
        "result": compact(job.result),
        "error": job.error,
    }
    show_one(session, record(job), fields)


@command(
    examples=["ratchet queue cancel 12", 'ratchet queue cancel 12 --reason "stuck"'], see=["runs cancel"]
)
@click.argument("job_id", metavar="JOB", type=ID, help="The number of a job.")
@click.option("--reason", default="cancelled on request", show_default=True, help="Why, for the record.")
@click.pass_obj
def cancel(session: Session, job_id: int, reason: str) -> None:
    """Cancel a job; a running one is told to stop.

    To end a whole run, and not just the work on it that is under way, use `ratchet runs cancel`.
    """
    with existing_runtime(session, Kinds()) as runtime, runtime.ledger.write(actor="cli") as tx:
        status = runtime.jobs.request_stop(tx, job_id, reason)
        job = get_job(tx, job_id)
    told = "is cancelled" if status is JobStatus.CANCELLED else f"is told to stop on {job.process_id}"
    confirm(session, record(job), f"Job {job_id} {told}.")


@command(examples=["ratchet queue pause default"], see=["queue resume"])
@click.argument("name", metavar="QUEUE", help="The name of a queue.")
@click.pass_obj
def pause(session: Session, name: str) -> None:
    """Let a queue stand still; running jobs go on.

    New jobs wait in it, whatever puts them there, until it is resumed.
    """
    with existing_runtime(session, Kinds()) as runtime:
        runtime.pause_queue(name, actor="cli")
    confirm(
        session,
        {"name": name, "paused": True},
        f"Queue {name} is paused; `ratchet queue resume {name}` goes on.",
    )


@command(examples=["ratchet queue resume default"], see=["queue pause"])
@click.argument("name", metavar="QUEUE", help="The name of a queue.")
@click.pass_obj
def resume(session: Session, name: str) -> None:
    """Let a paused queue go on.

    What waits in it is done, the most urgent first.
    """
    with existing_runtime(session, Kinds()) as runtime:
        runtime.resume_queue(name, actor="cli")
    confirm(session, {"name": name, "paused": False}, f"Queue {name} goes on.")


def _rules(session: Session) -> dict[str, QueueRule]:
    return configured_rules(session.load().settings)


def _queue_record(queue: QueueState) -> dict[str, Any]:
    return {**record(queue), "counts": {str(status): queue.counts.get(status, 0) for status in JobStatus}}


def _counting(status: JobStatus) -> Any:
    return lambda queue: queue.counts.get(status, 0)


def _limits(queue: QueueState) -> str | None:
    parts = []
    if queue.concurrency is not None:
        parts.append(f"{queue.concurrency} at once")
    if queue.rate_limit is not None:
        parts.append(f"{queue.rate_limit} in {queue.rate_seconds:g} s")
    return ", ".join(parts) or None


def _priority(job: Job) -> str:
    return f"{job.priority} (background)" if job.background else str(job.priority)


def _tries(job: Job) -> str:
    return f"{job.attempt}/{job.max_attempts}"
