"""A job: one piece of work that a worker is to do once; and the rows of jobs, read, locked and changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.kernel import NotFound, Superseded
from ratchet.ledger.tables import job_tallies, jobs

if TYPE_CHECKING:
    from ratchet.kernel import JobId
    from ratchet.ledger import Transaction


DEFAULT_QUEUE = "default"
# 0 is the most urgent, 9 the least.
DEFAULT_PRIORITY = 5
# Jobs of the last priority are background work: they start only where nothing else waits.
BACKGROUND = 9


class JobStatus(StrEnum):
    """Where a job is. `scheduled` waits for its time, `waiting` for its key, `queued` for a worker."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    WAITING = "waiting"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED})
# What may be stopped without asking a worker.
IDLE = (JobStatus.QUEUED, JobStatus.SCHEDULED, JobStatus.WAITING)


_LINE = "line:"


def run_key(run_id: int, line: str | None = None) -> str:
    """The key of the job that carries a run: at most one process works on it, or on any run of the same line."""
    return f"run:{run_id}" if line is None else f"{_LINE}{line}"


@dataclass(frozen=True, slots=True)
class Job:
    id: JobId
    kind: str
    queue: str
    key: str | None
    priority: int
    payload: Any
    run_id: int | None
    request_id: str | None
    once: str | None
    status: JobStatus
    stop: str | None
    attempt: int
    max_attempts: int
    timeout_ms: int | None
    delivery: int
    recoveries: int
    process_id: str | None
    created_at: int
    due_at: int
    started_at: int | None
    ended_at: int | None
    result: Any
    error: str | None

    @property
    def background(self) -> bool:
        return self.priority >= BACKGROUND

    @property
    def waits_until_at(self) -> int | None:
        """When it is due; nothing once it has ended."""
        return None if self.status.final else self.due_at

    @property
    def carries_run(self) -> bool:
        if self.run_id is None or self.key is None:
            return False
        return self.key == run_key(self.run_id) or self.key.startswith(_LINE)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Three tries by default; the pause doubles up to a cap. A worker's death is no fault of the job: deaths without
    progress in between are counted apart, and bounded so that a job that kills its workers ends."""

    max_attempts: int = 3
    base_seconds: float = 1.0
    cap_seconds: float = 60.0
    max_recoveries: int = 20

    def pause_seconds(self, attempt: int) -> float:
        """The wait after the try numbered `attempt` (from 1) has failed."""
        return min(self.cap_seconds, self.base_seconds * float(2 ** min(attempt - 1, 30)))


# Built once: they are asked for every job, and building a statement takes longer than running it.
_ONE = sa.select(jobs).where(jobs.c.id == sa.bindparam("job_id"))
_ONE_LOCKED = _ONE.with_for_update()
_UPDATE = sa.update(jobs).where(jobs.c.id == sa.bindparam("which"))


def get_job(tx: Transaction, job_id: int) -> Job:
    job = _first(tx, _ONE, job_id)
    if job is None:
        raise NotFound("job", job_id)
    return job


def lock_job(tx: Transaction, job_id: int) -> Job | None:
    """The job, which nobody else can change before the transaction ends."""
    return _first(tx, _ONE_LOCKED, job_id)


def set_job(tx: Transaction, job: Job, **values: Any) -> None:
    """Change a job that the transaction has locked."""
    if "status" in values:
        values["status"] = str(values["status"])
    tx.connection.execute(_UPDATE, {"which": job.id, **values})


def list_jobs(
    tx: Transaction,
    *,
    status: JobStatus | None = None,
    queue: str | None = None,
    run_id: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Job]:
    """Jobs, newest first, a page at a time."""
    wanted = {"status": status and str(status), "queue": queue, "run_id": run_id}
    query = sa.select(jobs).where(
        *(jobs.c[name] == value for name, value in wanted.items() if value is not None)
    )
    if before is not None:
        query = query.where(jobs.c.id < before)
    return read_jobs(tx, query.order_by(jobs.c.id.desc()).limit(limit))


def unfinished_jobs(tx: Transaction, run_id: int) -> list[Job]:
    """The jobs of a run that have not ended, oldest first: its carrier, and what it has given to others."""
    unfinished = [str(status) for status in JobStatus if not status.final]
    query = sa.select(jobs).where(jobs.c.run_id == run_id, jobs.c.status.in_(unfinished))
    return read_jobs(tx, query.order_by(jobs.c.id))


def last_carrier(tx: Transaction, run_id: int) -> Job | None:
    """The newest job that carried the run, ended or not. Only carriers have a key."""
    query = sa.select(jobs).where(jobs.c.run_id == run_id, jobs.c.key.is_not(None))
    return next(iter(read_jobs(tx, query.order_by(jobs.c.id.desc()).limit(1))), None)


def find_once(tx: Transaction, once: str) -> Job | None:
    """The job that was enqueued as `once`."""
    return next(iter(read_jobs(tx, sa.select(jobs).where(jobs.c.once == once))), None)


def count_jobs(tx: Transaction) -> dict[str, dict[str, int]]:
    """How many jobs each queue has in each status. Ended ones come from tallies: history is not counted over."""
    open_ones = (
        sa.select(jobs.c.queue, jobs.c.status, sa.func.count())
        .where(jobs.c.status.in_([str(status) for status in JobStatus if not status.final]))
        .group_by(jobs.c.queue, jobs.c.status)
    )
    ended = sa.select(job_tallies.c.queue, job_tallies.c.status, sa.func.sum(job_tallies.c.count)).group_by(
        job_tallies.c.queue, job_tallies.c.status
    )
    counts: dict[str, dict[str, int]] = {}
    for query in (open_ones, ended):
        for queue, status, number in tx.connection.execute(query):
            counts.setdefault(queue, dict.fromkeys(map(str, JobStatus), 0))[status] = int(number)
    return counts


def started_on(tx: Transaction) -> set[str]:
    """The processes that jobs are running on."""
    query = sa.select(jobs.c.process_id).where(jobs.c.status == str(JobStatus.STARTED)).distinct()
    return {process_id or "" for process_id in tx.connection.execute(query).scalars()}


def started_by(tx: Transaction, process_id: str) -> list[Job]:
    """The jobs that a process has claimed and not ended."""
    query = sa.select(jobs).where(jobs.c.process_id == process_id, jobs.c.status == str(JobStatus.STARTED))
    return read_jobs(tx, query)


def stops_wanted(tx: Transaction, process_id: str) -> list[int]:
    """The jobs running on a process that somebody wants stopped."""
    query = sa.select(jobs.c.id).where(
        jobs.c.process_id == process_id, jobs.c.status == str(JobStatus.STARTED), jobs.c.stop.is_not(None)
    )
    return list(tx.connection.execute(query).scalars())


def read_jobs(tx: Transaction, query: sa.Select[Any], values: dict[str, Any] | None = None) -> list[Job]:
    return [_job(row) for row in tx.connection.execute(query, values or {}).mappings()]


def _first(tx: Transaction, query: sa.Select[Any], job_id: int) -> Job | None:
    row = tx.connection.execute(query, {"job_id": job_id}).mappings().first()
    return None if row is None else _job(row)


def _job(row: sa.RowMapping) -> Job:
    return Job(**{**row, "status": JobStatus(row["status"])})


# Built once: it runs for every job, and building a statement takes longer than running it.
_CHANGE = sa.update(jobs).where(
    jobs.c.id == sa.bindparam("which"),
    jobs.c.delivery == sa.bindparam("held"),
    jobs.c.status == sa.literal(str(JobStatus.STARTED)),
)


def end_lease(tx: Transaction, job: Job, values: dict[str, Any]) -> None:
    """Change a started job to what becomes of it. Raises `Superseded` when it is somebody else's by now."""
    changed = tx.connection.execute(_CHANGE, {"which": job.id, "held": job.delivery, **values})
    if changed.rowcount != 1:
        raise superseded(job)


def superseded(job: Job) -> Superseded:
    """Why a delivery may do nothing more."""
    return Superseded(f"job {job.id} was taken over by another worker or has ended")
