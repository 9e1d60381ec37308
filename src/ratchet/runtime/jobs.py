"""What happens to jobs, as transactions on the ledger.

The job's row is the truth; the durable queue only carries tickets to it. A ticket opens the job when its number is
the row's newest, so a second delivery, a late one, or one to a worker that was thought dead, opens nothing. Whatever
changes a job posts the next ticket in the same transaction: state and delivery cannot come apart.
"""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ratchet.kernel import Conflict, JobId, Misuse, NotFound, RunStatus, Superseded
from ratchet.ledger import Transaction, change_run, to_json
from ratchet.ledger.runs import get_run
from ratchet.ledger.tables import job_tallies, jobs
from ratchet.runtime.delivery import Delivery, Ticket
from ratchet.runtime.job import DEFAULT_PRIORITY, DEFAULT_QUEUE, IDLE, READY, Job, JobStatus
from ratchet.runtime.policy import RetryPolicy
from ratchet.runtime.processes import is_alive

MAX_PAYLOAD_BYTES = 1024 * 1024
_BATCH = 500
_IN_LINE = (JobStatus.QUEUED, JobStatus.WAITING)


class Jobs:
    """The life of jobs: enqueue, begin, then one of finish, fail, release or stop."""

    def __init__(self, delivery: Delivery, policy: RetryPolicy) -> None:
        self._delivery = delivery
        self._policy = policy

    def enqueue(
        self,
        tx: Transaction,
        kind: str,
        payload: Any = None,
        *,
        queue: str = DEFAULT_QUEUE,
        key: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        delay_seconds: float = 0,
        run_id: int | None = None,
        once: str | None = None,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
        post: bool = True,
    ) -> Ticket | None:
        """Add a job; `None` when one with the same `once` exists already.

        Jobs with the same `key` never overlap. A delay in the past means now. With `post=False` no ticket is posted:
        the caller starts the job itself, and should it die before that, `reconcile` posts one.
        """
        _check(payload, priority, delay_seconds, max_attempts)
        late = max(0.0, delay_seconds)
        row = {
            "kind": kind,
            "queue": queue,
            "key": key,
            "priority": priority,
            "payload": payload if payload is not None else {},
            "run_id": run_id,
            "request_id": tx.request_id,
            "once": once,
            "status": str(JobStatus.SCHEDULED if late else JobStatus.QUEUED),
            "attempt": 0,
            "max_attempts": max_attempts or self._policy.max_attempts,
            "timeout_ms": None if timeout_seconds is None else int(timeout_seconds * 1000),
            "delivery": 1,
            "recoveries": 0,
            "created_at": tx.now,
            "due_at": tx.now + int(late * 1000),
        }
        dialect = postgresql if tx.on_postgresql else sqlite
        insert = dialect.insert(jobs).values(row)
        if once is not None:
            insert = insert.on_conflict_do_nothing(
                index_elements=["once"], index_where=sa.text("once IS NOT NULL")
            )
        number = tx.connection.execute(insert.returning(jobs.c.id)).scalar()
        if number is None:
            return None
        ticket = Ticket(JobId(number), 1)
        if post:
            self._delivery.post(tx.connection, ticket, queue=queue, priority=priority, delay_seconds=late)
        return ticket

    def begin(self, tx: Transaction, ticket: Ticket, process_id: str) -> Job | None:
        """Open the job for this process; `None` when the ticket is old, or the job must wait for its key.

        A process that the others have given up opens nothing: the ticket goes on to one of them.
        """
        job = _locked(tx, ticket.job_id)
        if job is None or job.delivery != ticket.delivery or job.status not in READY:
            return None
        if not is_alive(tx, process_id):
            self._again(tx, job, job.status)
            return None
        if job.key is not None and self._must_wait(tx, job):
            _update(tx, job, status=JobStatus.WAITING)
            return None
        _update(
            tx,
            job,
            status=JobStatus.STARTED,
            process_id=process_id,
            started_at=tx.now,
            attempt=job.attempt + 1,
        )
        return get_job(tx, job.id)

    def finish(self, tx: Transaction, job: Job, result: Any, *, keep: bool = False) -> Ticket | None:
        """Record success. Returns a ticket for the next job of the key when `keep` asks to start it here."""
        self._end(tx, job, JobStatus.FINISHED, result=result, error=None)
        return self._pass_key(tx, job, keep=keep)

    def fail(self, tx: Transaction, job: Job, error: str, *, final: bool = False) -> JobStatus:
        """Record a failed try: the job is scheduled again, or failed for good."""
        _owned(tx, job)
        if final or job.attempt >= job.max_attempts:
            self._end(tx, job, JobStatus.FAILED, error=error)
            status = JobStatus.FAILED
            tx.event("job.failed", job_id=job.id, run_id=job.run_id, message=error, data=_tries(job))
            _strand_run(tx, job, RunStatus.FAILED, error)
        else:
            pause = self._policy.pause_seconds(job.attempt)
            status = JobStatus.SCHEDULED
            self._again(tx, job, status, delay_seconds=pause, error=error)
            data = {**_tries(job), "retry_in_seconds": pause}
            tx.event("job.retrying", job_id=job.id, run_id=job.run_id, message=error, data=data)
        self._pass_key(tx, job)
        return status

    def release(self, tx: Transaction, job: Job) -> None:
        """Give a started job back unfinished; this try does not count."""
        _owned(tx, job)
        self._again(tx, job, JobStatus.QUEUED, attempt=job.attempt - 1)
        tx.event("job.released", job_id=job.id, run_id=job.run_id, message="its worker could not go on")
        self._pass_key(tx, job)

    def decline(self, tx: Transaction, ticket: Ticket, *, delay_seconds: float) -> None:
        """Send a ticket back unopened: this worker has no room."""
        job = _locked(tx, ticket.job_id)
        if job is not None and job.delivery == ticket.delivery and job.status in READY:
            self._again(tx, job, job.status, delay_seconds=delay_seconds)

    def stopped(self, tx: Transaction, job: Job) -> None:
        """Record that a started job was stopped on request."""
        reason = get_job(tx, job.id).stop or "stopped"
        self._end(tx, job, JobStatus.CANCELLED, error=reason)
        tx.event("job.cancelled", job_id=job.id, run_id=job.run_id, message=reason)
        _strand_run(tx, job, RunStatus.BLOCKED, f"its job was cancelled: {reason}")
        self._pass_key(tx, job)

    def request_stop(self, tx: Transaction, job_id: int, reason: str) -> JobStatus:
        """Stop a job: at once when nobody works on it, else by asking its worker. Raises when it has ended."""
        job = _locked(tx, job_id)
        if job is None:
            raise NotFound("job", job_id)
        if job.status.final:
            raise Conflict(f"job {job_id} is {job.status}; only an unfinished job can be stopped")
        if job.status in IDLE:
            self._end(tx, job, JobStatus.CANCELLED, error=reason)
            tx.event("job.cancelled", job_id=job_id, run_id=job.run_id, message=reason)
            _strand_run(tx, job, RunStatus.BLOCKED, f"its job was cancelled: {reason}")
            self._pass_key(tx, job)
            return JobStatus.CANCELLED
        _update(tx, job, stop=reason)
        tx.event("job.stopping", job_id=job_id, run_id=job.run_id, message=reason)
        return JobStatus.STARTED

    def take_over(self, tx: Transaction, process_id: str) -> int:
        """Hand the jobs of a dead process to the living; how many there were (call again while it is a full batch)."""
        query = (
            sa.select(jobs)
            .where(jobs.c.process_id == process_id, jobs.c.status == str(JobStatus.STARTED))
            .order_by(jobs.c.id)
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
        )
        orphans = [_job(row) for row in tx.connection.execute(query).mappings()]
        for job in orphans:
            if job.stop is not None:
                self.stopped(tx, job)
            elif job.recoveries >= self._policy.max_recoveries:
                self.fail(tx, job, f"its worker died {job.recoveries + 1} times while doing it", final=True)
            else:
                tx.event("job.recovered", job_id=job.id, run_id=job.run_id, message=f"{process_id} is gone")
                # The interrupted try does not count: the job did nothing wrong.
                self._again(tx, job, JobStatus.QUEUED, attempt=job.attempt - 1, recoveries=job.recoveries + 1)
                self._pass_key(tx, job)
        return len(orphans)

    def reconcile(self, tx: Transaction, *, grace_seconds: float) -> int:
        """Mend what any crash may have left: due jobs without a ticket under way, and waiting jobs whose key is free.

        Looks at the oldest only, so its cost does not grow; what is stuck becomes the oldest in time.
        """
        due = (
            sa.select(jobs)
            .where(jobs.c.status.in_([str(status) for status in READY]))
            .where(jobs.c.due_at < tx.now - int(grace_seconds * 1000))
            .order_by(jobs.c.id)
            .limit(_BATCH)
        )
        suspects = [Ticket(job.id, job.delivery) for job in map(_job, tx.connection.execute(due).mappings())]
        lost = self._delivery.lost(suspects)
        for ticket in lost:
            self.decline(tx, ticket, delay_seconds=0)
        holder = jobs.alias("holder")
        held = sa.exists().where(holder.c.key == jobs.c.key, holder.c.status == str(JobStatus.STARTED))
        free = sa.select(jobs.c.id).where(jobs.c.status == str(JobStatus.WAITING), ~held).limit(_BATCH)
        stranded = list(tx.connection.execute(free).scalars())
        for number in stranded:
            job = _locked(tx, number)
            if job is not None and job.status is JobStatus.WAITING:
                self._again(tx, job, JobStatus.QUEUED)
        return len(lost) + len(stranded)

    def _again(
        self, tx: Transaction, job: Job, status: JobStatus, *, delay_seconds: float = 0, **values: Any
    ) -> None:
        """Put the job back in line under a new ticket."""
        ticket = Ticket(job.id, job.delivery + 1)
        due = {} if not delay_seconds else {"due_at": tx.now + int(delay_seconds * 1000)}
        _update(tx, job, status=status, process_id=None, delivery=ticket.delivery, **due, **values)
        self._delivery.post(
            tx.connection, ticket, queue=job.queue, priority=job.priority, delay_seconds=delay_seconds
        )

    def _end(self, tx: Transaction, job: Job, status: JobStatus, **values: Any) -> None:
        if job.status is JobStatus.STARTED:
            _owned(tx, job)
        _update(tx, job, status=status, ended_at=tx.now, **values)
        _tally(tx, job, status)

    def _must_wait(self, tx: Transaction, job: Job) -> bool:
        """Whether another job of the key runs, or stands before this one in line."""
        tx.lock_key(f"job:{job.key}")
        running = sa.select(sa.literal(1)).where(
            jobs.c.key == job.key, jobs.c.status == str(JobStatus.STARTED)
        )
        before = sa.select(sa.literal(1)).where(
            jobs.c.key == job.key,
            jobs.c.status.in_([str(status) for status in _IN_LINE]),
            sa.tuple_(jobs.c.priority, jobs.c.id) < (job.priority, job.id),
        )
        query = sa.select(sa.or_(running.exists(), before.exists()))
        return bool(tx.connection.execute(query).scalar())

    def _pass_key(self, tx: Transaction, job: Job, *, keep: bool = False) -> Ticket | None:
        """Let the next job of the key go on. With `keep` its ticket comes back unposted, to be used here at once."""
        if job.key is None:
            return None
        # The same lock as in `_must_wait`: whoever must wait has written it down before we look.
        tx.lock_key(f"job:{job.key}")
        query = (
            sa.select(jobs)
            .where(jobs.c.key == job.key, jobs.c.status == str(JobStatus.WAITING))
            .order_by(jobs.c.priority, jobs.c.id)
            .limit(1)
        )
        row = tx.connection.execute(query).mappings().first()
        if row is None:
            return None
        waiting = _job(row)
        if not keep or waiting.queue != job.queue:
            self._again(tx, waiting, JobStatus.QUEUED)
            return None
        ticket = Ticket(waiting.id, waiting.delivery + 1)
        _update(tx, waiting, status=JobStatus.QUEUED, delivery=ticket.delivery)
        return ticket


def get_job(tx: Transaction, job_id: int) -> Job:
    row = tx.connection.execute(sa.select(jobs).where(jobs.c.id == job_id)).mappings().first()
    if row is None:
        raise NotFound("job", job_id)
    return _job(row)


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
    return [
        _job(row) for row in tx.connection.execute(query.order_by(jobs.c.id.desc()).limit(limit)).mappings()
    ]


def count_jobs(tx: Transaction) -> dict[str, dict[str, int]]:
    """How many jobs each queue has in each status. Ended ones come from tallies: history is not counted over."""
    open_ones = (
        sa.select(jobs.c.queue, jobs.c.status, sa.func.count())
        .where(jobs.c.status.in_([str(s) for s in JobStatus if not s.final]))
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


def stops_wanted(tx: Transaction, process_id: str) -> list[int]:
    """The jobs running on a process that somebody wants stopped."""
    query = sa.select(jobs.c.id).where(
        jobs.c.process_id == process_id, jobs.c.status == str(JobStatus.STARTED), jobs.c.stop.is_not(None)
    )
    return list(tx.connection.execute(query).scalars())


def check_owned(tx: Transaction, job: Job) -> None:
    """Raise `Superseded` unless this delivery of a started job is still the one that counts."""
    _owned(tx, job)


def _owned(tx: Transaction, job: Job) -> None:
    row = _locked(tx, job.id)
    if row is None or row.status is not JobStatus.STARTED or row.delivery != job.delivery:
        raise Superseded(f"job {job.id} was taken over by another worker or has ended")


def _locked(tx: Transaction, job_id: int) -> Job | None:
    query = sa.select(jobs).where(jobs.c.id == job_id).with_for_update()
    row = tx.connection.execute(query).mappings().first()
    return None if row is None else _job(row)


def _update(tx: Transaction, job: Job, **values: Any) -> None:
    if "status" in values:
        values["status"] = str(values["status"])
    tx.connection.execute(sa.update(jobs).where(jobs.c.id == job.id).values(**values))


def _strand_run(tx: Transaction, job: Job, to: RunStatus, reason: str) -> None:
    """A run whose carrier has ended before it stands still: say so, unless it was paused or has ended itself."""
    if job.run_id is None or not job.carries_run:
        return
    status = get_run(tx, job.run_id).status
    if not status.final and status is not RunStatus.PAUSED:
        change_run(tx, job.run_id, to, reason=reason)


def _tally(tx: Transaction, job: Job, status: JobStatus) -> None:
    dialect = postgresql if tx.on_postgresql else sqlite
    row = {"queue": job.queue, "status": str(status), "process_id": job.process_id or "", "count": 1}
    tx.connection.execute(
        dialect.insert(job_tallies)
        .values(row)
        .on_conflict_do_update(
            index_elements=["queue", "status", "process_id"], set_={"count": job_tallies.c.count + 1}
        )
    )


def _check(payload: Any, priority: int, delay_seconds: float, max_attempts: int | None) -> None:
    size = len(to_json(payload))
    if size > MAX_PAYLOAD_BYTES:
        raise Misuse(
            f"a job's payload of {size} bytes is too large (at most {MAX_PAYLOAD_BYTES})",
            hint="keep it as an artifact and pass its hash",
        )
    if not 0 <= priority <= 9:
        raise Misuse(f"priority {priority} is out of range", hint="0 is the most urgent, 9 the least")
    if not math.isfinite(delay_seconds):
        raise Misuse(f"a delay of {delay_seconds} seconds cannot be kept")
    if max_attempts is not None and max_attempts < 1:
        raise Misuse(f"max_attempts {max_attempts} would never try")


def _tries(job: Job) -> dict[str, Any]:
    return {"kind": job.kind, "attempt": job.attempt, "max_attempts": job.max_attempts}


def _job(row: sa.RowMapping) -> Job:
    return Job(**{**row, "status": JobStatus(row["status"])})
