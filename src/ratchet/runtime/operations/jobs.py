"""The operations on queues, the jobs in them and the processes that do these.

Over HTTP a job and a queue have the names and the form that clients of the API know; see `JobAnswer` and `QueueAnswer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from ratchet.ledger import Event, EventFilter
from ratchet.ledger.projects import projects_of_runs
from ratchet.operations import (
    Listing,
    McpTool,
    Param,
    Translation,
    Window,
    described,
    filled,
    number_of,
    operation,
)
from ratchet.runtime.call import Call
from ratchet.runtime.job import Job, JobStatus, get_job, list_jobs
from ratchet.runtime.jobs import QueueState, configured_rules, list_queues, set_paused
from ratchet.runtime.operations.runs import Reason, RunFilter
from ratchet.runtime.processes import FleetNode, Process, list_nodes, list_processes

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

JobNumber = Annotated[int, number_of("The number of a job.", "JOB")]
QueueName = Annotated[str, Param("The name of a queue.", metavar="QUEUE")]
QueueFilter = Annotated[str | None, Param("Only of this queue.", metavar="QUEUE", longest=200)]
StatusFilter = Annotated[JobStatus | None, Param("Only in this status.")]
_FAILED_TRIES = ("job.retrying", "job.failed")
_MOST_TRIES = 500


@dataclass(frozen=True, slots=True)
class FailedTry:
    event_id: int
    at: int
    attempt: int | None
    error: str | None
    retry_in_seconds: float | None = field(
        metadata=described("the pause before the next try; null when it was the last")
    )

    @classmethod
    def of(cls, event: Event) -> Self:
        data = event.data or {}
        return cls(event.id, event.at, data.get("attempt"), event.message, data.get("retry_in_seconds"))


@dataclass(frozen=True, slots=True)
class JobWithTries(Job):
    failed_tries: list[FailedTry]


@dataclass(frozen=True, slots=True)
class Meta:
    run_id: int | None
    key: str | None
    priority: int
    background: bool = field(metadata=described("whether it gives way to all other work"))
    request_id: str | None
    once: str | None
    stop: str | None = field(metadata=described("why it is to stop, when a person asked for that"))
    process_id: str | None
    recoveries: int = field(metadata=described("workers that died while doing it, since its last progress"))
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class JobAnswer:
    job_id: int
    job_type: str
    payload: Any
    status: JobStatus
    queue: str
    created_at: int
    attempts: int
    max_attempts: int
    next_run_at: int | None = field(metadata=described("when a scheduled job is due"))
    started_at: int | None
    ended_at: int | None
    result: Any
    error: str | None
    meta: Meta

    @classmethod
    def of(cls, job: Job, **more: Any) -> Self:
        return filled(
            cls,
            job,
            job_id=job.id,
            job_type=job.kind,
            attempts=job.attempt,
            next_run_at=job.due_at if job.status is JobStatus.SCHEDULED else None,
            meta=filled(Meta, job),
            **more,
        )

    @classmethod
    def at(cls, tx: Transaction, job_id: int) -> Self:
        return cls.of(get_job(tx, job_id))


@dataclass(frozen=True, slots=True)
class AcceptedAnswer:
    """Something is queued, and `job` is what does it."""

    message: str = field(metadata={"examples": ["01-build is queued"]})
    job: JobAnswer | None


@dataclass(frozen=True, slots=True)
class StepAcceptedAnswer(AcceptedAnswer):
    """A step is queued."""

    step_id: int


@dataclass(frozen=True, slots=True)
class JobWithTriesAnswer(JobAnswer):
    failed_tries: list[FailedTry]


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    queued: int
    scheduled: int
    waiting: int
    started: int
    finished: int
    failed: int
    cancelled: int
    paused: bool
    concurrency: int | None = field(
        metadata=described("jobs that run at once in the whole fleet; null is no limit")
    )
    rate_limit: int | None = field(metadata=described("jobs that may start in rate_seconds"))
    rate_seconds: float | None

    @classmethod
    def of(cls, state: QueueState) -> Self:
        return filled(cls, state, **{str(status): state.counts.get(status, 0) for status in JobStatus})


_JOB = Translation(JobAnswer, JobAnswer.of)
_QUEUE = Translation(QueueAnswer, QueueAnswer.of)


def _priority(job: Job) -> str:
    return f"{job.priority} (background)" if job.background else str(job.priority)


def _tries(job: Job) -> str:
    return f"{job.attempt}/{job.max_attempts}"


@operation(
    "queue jobs",
    "GET /queues/jobs",
    project_too=True,
    tool=McpTool("list_jobs", "List jobs"),
    examples=["ratchet queue jobs", "ratchet queue jobs --status failed -n 5", "ratchet queue jobs --run 7"],
    see=["queue show"],
    columns={
        "job": "id",
        "kind": "kind",
        "queue": "queue",
        "status": "status",
        "priority": _priority,
        "tries": _tries,
        "run": "run_id",
        "key": "key",
        "created": "created_at",
        "took": ("started_at", "ended_at"),
        "error": "error",
    },
    empty="No such jobs. `ratchet demo` makes some, and so does every run.",
    translated=_JOB,
    enveloped=False,
)
def jobs(
    call: Call,
    window: Window,
    status: StatusFilter = None,
    queue: QueueFilter = None,
    run_id: RunFilter = None,
) -> Listing[Job]:
    """List jobs, newest first.

    A job is what a worker takes on. Jobs of projects whose token was not shown are left out.
    """
    with call.read() as tx:
        found = list_jobs(
            tx, status=status, queue=queue, run_id=run_id, before=window.before, limit=window.one_more
        )
        projects = projects_of_runs(tx, {job.run_id for job in found if job.run_id is not None})
        hidden = call.hidden(tx, projects.values())
    return window.without(found, lambda job: projects.get(job.run_id or 0) in hidden)


@operation(
    "queue show",
    "GET /queues/jobs/{job_id}",
    project_too=True,
    examples=["ratchet queue show 12"],
    columns={
        "job": "id",
        "kind": "kind",
        "queue": "queue",
        "status": "status",
        "stop asked": "stop",
        "run": "run_id",
        "key": "key",
        "priority": _priority,
        "tries": _tries,
        "recoveries": lambda job: job.recoveries or None,
        "process": "process_id",
        "created": "created_at",
        "due": "waits_until_at",
        "started": "started_at",
        "took": ("started_at", "ended_at"),
        "payload": "payload",
        "result": "result",
        "error": "error",
    },
    translated=Translation(
        JobWithTriesAnswer, lambda job: JobWithTriesAnswer.of(job, failed_tries=job.failed_tries)
    ),
)
def show(call: Call, job_id: JobNumber) -> JobWithTries:
    """Show one job with the tries that failed.

    Its status, how often it was tried, which process has it, and its error if it has failed.
    """
    with call.read() as tx:
        job = get_job(tx, job_id)
        tries = _failed_tries(tx, job_id)
    return filled(JobWithTries, job, failed_tries=tries)


@operation(
    "queue cancel",
    "POST /queues/jobs/{job_id}/cancel",
    examples=["ratchet queue cancel 12", 'ratchet queue cancel 12 --reason "stuck"'],
    see=["runs cancel"],
    done=lambda job: (
        f"Job {job.id} is cancelled"
        if job.status is JobStatus.CANCELLED
        else f"Job {job.id} is asked to stop on {job.process_id}"
    ),
    translated=_JOB,
)
def cancel(call: Call, job_id: JobNumber, reason: Reason = "cancelled on request") -> Job:
    """Cancel a job; a running one is asked to stop.

    It ends at once when no worker runs it, else its worker is asked to stop. To end a whole run, and not just the work
    on it that is under way, use `ratchet runs cancel`.
    """
    with call.write() as tx:
        call.runtime.jobs.request_stop(tx, job_id, reason)
        return get_job(tx, job_id)


def _limits(queue: QueueState) -> str | None:
    parts = []
    if queue.concurrency is not None:
        parts.append(f"{queue.concurrency} at once")
    if queue.rate_limit is not None:
        parts.append(f"{queue.rate_limit} in {queue.rate_seconds:g} s")
    return ", ".join(parts) or None


def _counting(status: JobStatus) -> Callable[[QueueState], int]:
    return lambda queue: queue.counts[status]


@operation(
    "queue list",
    "GET /queues",
    examples=["ratchet queue list", "ratchet queue list --json | jq '.[].counts.failed'"],
    see=["queue jobs", "processes"],
    columns={
        "queue": "name",
        "state": lambda queue: "paused" if queue.paused else "active",
        "limits": _limits,
        **{str(status): _counting(status) for status in JobStatus},
    },
    empty="There are no queues.",
)
def list_(call: Call) -> Listing[QueueState]:
    """List queues and how many jobs they hold.

    There is always the queue `default`; others come from the settings, as [queues.NAME] with their limits.
    """
    with call.read() as tx:
        found = list_queues(tx, configured_rules(call.settings))
    counts = [{str(status): each.counts.get(status, 0) for status in JobStatus} for each in found]
    return Listing([replace(each, counts=own) for each, own in zip(found, counts, strict=True)])


@operation(
    "queue pause",
    "POST /queues/{name}/pause",
    examples=["ratchet queue pause default"],
    see=["queue resume"],
    done="Queue {it.name} is paused",
    then="`ratchet queue resume {it.name}` resumes it",
    translated=_QUEUE,
)
def pause(call: Call, name: QueueName) -> QueueState:
    """Pause a queue; running jobs continue.

    In the whole fleet no more jobs of it are started, whatever puts them there, until it is resumed.
    """
    return _set_paused(call, name, paused=True)


@operation(
    "queue resume",
    "POST /queues/{name}/resume",
    examples=["ratchet queue resume default"],
    see=["queue pause"],
    done="Queue {it.name} is resumed",
    translated=_QUEUE,
)
def resume(call: Call, name: QueueName) -> QueueState:
    """Resume a paused queue.

    What waits in it is done, the most urgent first.
    """
    return _set_paused(call, name, paused=False)


def _set_paused(call: Call, name: str, *, paused: bool) -> QueueState:
    rules = configured_rules(call.settings)
    with call.write() as tx:
        set_paused(tx, rules, name, paused)
        return next(state for state in list_queues(tx, rules) if state.name == name)


def _failed_tries(tx: Transaction, job_id: int) -> list[FailedTry]:
    from ratchet.ledger.events import since

    found = since(tx.connection, where=EventFilter(job_id=job_id, type="job.*"), limit=_MOST_TRIES)
    return [FailedTry.of(event) for event in found if event.type in _FAILED_TRIES]


@dataclass(frozen=True, slots=True)
class ProcessAnswer:
    id: str
    role: str
    host: str
    pid: int
    version: str
    state: str
    slots: int
    busy: int
    started_at: int
    beat_at: int

    @classmethod
    def of(cls, process: Process) -> Self:
        return filled(cls, process)


@operation(
    "processes",
    "GET /processes",
    tool=McpTool("list_processes", "List processes"),
    examples=["ratchet processes", "ratchet processes --json | jq -r '.[].host'"],
    see=["worker", "serve"],
    columns={
        "process": "id",
        "role": "role",
        "host": "host",
        "pid": lambda process: str(process.pid),
        "state": "state",
        "busy": lambda process: f"{process.busy}/{process.slots}",
        "started": "started_at",
        "last beat": "beat_at",
        "version": "version",
    },
    empty="No process works on this ledger. `ratchet serve` or `ratchet worker` starts one.",
)
def processes(call: Call) -> Listing[ProcessAnswer]:
    """List the servers and workers on this ledger.

    On all machines, oldest first. Without one that has slots, nothing that is queued is started. One without a
    heartbeat for a while counts as dead, and its jobs are given to others.
    """
    with call.read() as tx:
        return Listing([ProcessAnswer.of(each) for each in list_processes(tx)])


def _used(node: FleetNode) -> str:
    if node.kind == "machine":
        return f"{node.busy}/{node.slots} slots"
    return f"{node.cpus_used or 0:g}/{node.cpus:g} CPUs"


@operation(
    "nodes",
    "GET /nodes",
    tool=McpTool("list_nodes", "List nodes"),
    examples=["ratchet nodes", "ratchet nodes --json | jq -r '.[] | select(.state == \"dead\").name'"],
    see=["processes", "doctor"],
    columns={
        "node": "name",
        "kind": "kind",
        "state": "state",
        "used": _used,
        "cpus": lambda node: f"{node.cpus:g}",
        "gpus": lambda node: ", ".join(node.gpus) or "none",
        "processes": lambda node: ", ".join(f"{count} {role}" for role, count in node.roles.items()),
        "last beat": "beat_at",
        "version": lambda node: ", ".join(node.versions),
    },
    empty="No process works on this ledger. `ratchet serve` or `ratchet worker` starts one.",
)
def nodes(call: Call) -> Listing[FleetNode]:
    """List the machines on which processes work, and the nodes of their cluster.

    Slots are jobs at once. A node of a cluster shows what the cluster has given out of its CPUs, as a worker that
    places work there saw it within the last minute.
    """
    with call.read() as tx:
        return Listing(list_nodes(tx, call.settings.runtime.dead_after_seconds))


# The API shows queues as an object by name: see `server/routes/flows.py`.
QUEUE_OPERATIONS = (pause, resume)
PROCESS_OPERATIONS = (processes, nodes)
JOB_OPERATIONS = (jobs, show, cancel)
