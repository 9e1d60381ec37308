"""What happens to jobs, as transactions on the ledger.

The job's row is the truth. A job that can start now is `queued`, and any worker with room takes it from the ledger.
What must be waited for, a time or a limit that holds over the whole fleet, is left to the durable queue: it brings a
ticket when the time has come. A ticket opens the job only while its number is the row's newest, so a second delivery, a
late one, or one to a worker that was thought dead, opens nothing. Whatever changes a job posts its next ticket in the
same transaction: state and delivery cannot come apart.

Transactions lock a job's row first and its key second; under a key nobody waits for a row, and who already holds
something does not wait for a key either. So no two wait for each other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, JobId, Misuse, NotFound, RunStatus
from ratchet.ledger import Topic, Transaction, change_run, to_json
from ratchet.ledger.prepared import Prepared
from ratchet.ledger.runs import get_run
from ratchet.ledger.tables import job_tallies, jobs, processes, queues
from ratchet.ledger.upsert import upsert
from ratchet.runtime.background import foreground_waits, has_room_behind
from ratchet.runtime.delivery import Delivery, QueueRule, Ticket
from ratchet.runtime.job import BACKGROUND, DEFAULT_PRIORITY, DEFAULT_QUEUE, IDLE, READY, Job, JobStatus
from ratchet.runtime.job_rows import get_job, last_carrier, lock_job, read_jobs, superseded
from ratchet.runtime.processes import ALIVE, is_alive
from ratchet.runtime.queues import known, paused_queues

if TYPE_CHECKING:
    from ratchet.runtime.kinds import Kinds
    from ratchet.runtime.policy import RetryPolicy

MAX_PAYLOAD_BYTES = 1024 * 1024
_BATCH = 500
# How soon a ticket that came too early (its queue was paused just now, or is full) is brought again.
_ASK_AGAIN_SECONDS = 1.0
_IN_LINE = (JobStatus.QUEUED, JobStatus.WAITING)

# Built once: they run for every job, and building a statement takes longer than running it.
_UPDATE = sa.update(jobs).where(jobs.c.id == sa.bindparam("which"))
_UPDATE_OWNED = _UPDATE.where(
    jobs.c.delivery == sa.bindparam("held"), jobs.c.status == sa.literal(str(JobStatus.STARTED))
)
_INSERT = sa.insert(jobs).returning(jobs.c.id)
_READY = (
    sa.select(jobs)
    .where(jobs.c.queue == sa.bindparam("wanted"), jobs.c.status == sa.literal_column("'queued'"))
    .where(~sa.exists().where(queues.c.name == jobs.c.queue, queues.c.paused))
    .where(sa.exists().where(processes.c.id == sa.bindparam("process"), processes.c.state.in_(ALIVE)))
    .order_by(jobs.c.priority, jobs.c.id)
    .limit(sa.bindparam("most"))
    .with_for_update(of=jobs, skip_locked=True)
)


_TALLY = Prepared(
    upsert(job_tallies, ("queue", "status", "process_id"), lambda _new: {"count": job_tallies.c["count"] + 1})
)


class Jobs:
    """The life of jobs: enqueue; claim or begin; then one of finish, fail, release or stopped."""

    def __init__(
        self, delivery: Delivery, rules: dict[str, QueueRule], kinds: Kinds, policy: RetryPolicy
    ) -> None:
        self._delivery = delivery
        self._rules = rules
        self._kinds = kinds
        self._plain = [name for name, rule in rules.items() if not rule.limited]
        self._limited = {name for name, rule in rules.items() if rule.limited}
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
    ) -> JobId | None:
        """Add a job; `None` when one with the same `once` exists already.

        Jobs with the same `key` never overlap. A delay in the past means now.
        """
        self.check_enqueuable(kind, queue, payload)
        _check(priority, delay_seconds, max_attempts)
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
        if once is None:
            number = tx.connection.execute(_INSERT, row).scalar()
        else:
            unless_there = tx.insert(jobs).on_conflict_do_nothing(
                index_elements=["once"], index_where=sa.text("once IS NOT NULL")
            )
            number = tx.connection.execute(unless_there.values(row).returning(jobs.c.id)).scalar()
        if number is None:
            return None
        self._send(tx, Ticket(JobId(number), 1), queue, priority, late)
        return JobId(number)

    def check_enqueuable(self, kind: str, queue: str, payload: Any) -> None:
        """Raise `Misuse` unless there are such a kind and such a queue, and the payload can be kept."""
        self._kinds.get(kind)
        known(self._rules, queue)
        size = len(to_json(payload))
        if size > MAX_PAYLOAD_BYTES:
            raise Misuse(
                f"a job's payload of {size} bytes is too large (at most {MAX_PAYLOAD_BYTES})",
                hint="keep it as an artifact and pass its hash",
            )

    def claim(self, tx: Transaction, process_id: str, most: int) -> list[Job]:
        """Start up to `most` jobs on this process, the most urgent first. Those whose key is busy are made to wait, and
        background ones are left when they would take the last place."""
        started: list[Job] = []
        passed_over: set[int] = set()
        crowded = False
        while len(started) < most and not crowded:
            wanted = most - len(started)
            values = {"process": process_id, "most": wanted + len(passed_over)}
            found = [
                job for queue in self._plain for job in read_jobs(tx, _READY, {"wanted": queue, **values})
            ]
            found = sorted(found, key=lambda job: (job.priority, job.id))
            for job in [job for job in found if job.id not in passed_over][:wanted]:
                if job.background and not has_room_behind(tx, process_id):
                    # Only background jobs come after this one.
                    crowded = True
                    break
                if job.key is not None and not tx.try_lock_key(f"job:{job.key}"):
                    passed_over.add(job.id)
                elif (running := self._start(tx, job, process_id)) is not None:
                    started.append(running)
            if len(found) < wanted + len(passed_over):
                break
        if passed_over:
            # Somebody is changing their keys this moment; look again right after.
            tx.announce(Topic.JOBS)
        return started

    def begin(self, tx: Transaction, ticket: Ticket, process_id: str) -> Job | None:
        """Start the job of a ticket; `None` when the ticket is old, or the job must wait for its key.

        A process that the others have given up starts nothing: the ticket goes on to one of them.
        """
        job = self._opened(tx, ticket)
        if job is None:
            return None
        if not is_alive(tx, process_id):
            self._place(tx, job)
            return None
        crowded = job.background and (self.foreground_waits(tx) or not has_room_behind(tx, process_id))
        if crowded or job.queue in paused_queues(tx) or not self._has_room(tx, job.queue):
            self._place(tx, job, delay_seconds=_ASK_AGAIN_SECONDS if job.queue in self._limited else 0)
            return None
        if job.key is not None:
            tx.lock_keys(f"job:{job.key}")
        return self._start(tx, job, process_id)

    def defer(self, tx: Transaction, ticket: Ticket, *, delay_seconds: float = 0) -> None:
        """Send a ticket back unused: whoever got it has no room. The delay is for limited queues only; in any other
        the job now lies ready for the first worker that has room."""
        job = self._opened(tx, ticket)
        if job is not None:
            self._place(tx, job, delay_seconds=delay_seconds if job.queue in self._limited else 0)

    def finish(self, tx: Transaction, job: Job, result: Any) -> None:
        """Record success."""
        self._end(tx, job, JobStatus.FINISHED, result=result, error=None)

    def fail(self, tx: Transaction, job: Job, error: str, *, final: bool = False) -> JobStatus:
        """Record a failed try: the job is scheduled again, or failed for good."""
        if final or job.attempt >= job.max_attempts:
            self._end(tx, job, JobStatus.FAILED, error=error)
            tx.event("job.failed", job_id=job.id, run_id=job.run_id, message=error, data=_tries(job))
            _strand_run(tx, job, RunStatus.FAILED, error)
            return JobStatus.FAILED
        pause = self._policy.pause_seconds(job.attempt)
        self._place(tx, job, delay_seconds=pause, error=error)
        data = {**_tries(job), "retry_in_seconds": pause}
        tx.event("job.retrying", job_id=job.id, run_id=job.run_id, message=error, data=data)
        return JobStatus.SCHEDULED

    def release(self, tx: Transaction, job: Job, reason: str = "its worker could not go on") -> None:
        """Give a started job back unfinished; this try does not count. One whose stop was asked for has ended."""
        held = lock_job(tx, job.id)
        if held is not None and held.stop is not None:
            self.stopped(tx, job)
            return
        self._place(tx, job, attempt=job.attempt - 1)
        tx.event("job.released", job_id=job.id, run_id=job.run_id, message=reason)

    def stopped(self, tx: Transaction, job: Job) -> None:
        """Record that a started job was stopped on request."""
        self._cancel(tx, job, get_job(tx, job.id).stop or "stopped")

    def request_stop(self, tx: Transaction, job_id: int, reason: str) -> JobStatus:
        """Stop a job: at once when nobody works on it, else by asking its worker. Raises when it has ended."""
        job = lock_job(tx, job_id)
        if job is None:
            raise NotFound("job", job_id)
        if job.status.final:
            raise Conflict(f"job {job_id} is {job.status}; only an unfinished job can be stopped")
        if job.status in IDLE:
            self._cancel(tx, job, reason)
            return JobStatus.CANCELLED
        _set(tx, job, stop=reason)
        tx.announce(Topic.STOPS)
        tx.event("job.stopping", job_id=job_id, run_id=job.run_id, message=reason)
        return JobStatus.STARTED

    def take_over(self, tx: Transaction, process_id: str) -> int:
        """Hand the jobs of a dead process to the living; how many there were (call again until there are none)."""
        query = (
            sa.select(jobs)
            .where(jobs.c.process_id == process_id, jobs.c.status == str(JobStatus.STARTED))
            .order_by(jobs.c.id)
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
        )
        orphans = read_jobs(tx, query)
        tx.lock_keys(*(f"job:{job.key}" for job in orphans if job.key is not None))
        for job in orphans:
            if job.stop is not None:
                self.stopped(tx, job)
            elif job.recoveries >= self._policy.max_recoveries:
                self.fail(tx, job, f"its worker died {job.recoveries + 1} times while doing it", final=True)
            else:
                tx.event("job.recovered", job_id=job.id, run_id=job.run_id, message=f"{process_id} is gone")
                # The interrupted try does not count: the job did nothing wrong.
                self._place(tx, job, attempt=job.attempt - 1, recoveries=job.recoveries + 1)
        return len(orphans)

    def reconcile(self, tx: Transaction, *, grace_seconds: float) -> int:
        """Mend what a crash or a lost table may have left: jobs whose ticket is not under way, and jobs that wait for a
        key that is free. Looks at the oldest only, so its cost does not grow: what is stuck becomes the oldest in time.
        """
        late = jobs.c.due_at < tx.now - int(grace_seconds * 1000)
        ticketed = sa.or_(
            jobs.c.status == str(JobStatus.SCHEDULED),
            sa.and_(jobs.c.status == str(JobStatus.QUEUED), jobs.c.queue.in_(self._limited)),
        )
        suspects = read_jobs(tx, sa.select(jobs).where(ticketed, late).order_by(jobs.c.id).limit(_BATCH))
        lost = self._delivery.lost([Ticket(job.id, job.delivery) for job in suspects])
        for ticket in lost:
            self.defer(tx, ticket)
        holder = jobs.alias("holder")
        held = sa.exists().where(holder.c.key == jobs.c.key, holder.c.status == str(JobStatus.STARTED))
        free = sa.select(jobs).where(jobs.c.status == str(JobStatus.WAITING), ~held).limit(_BATCH)
        stranded = read_jobs(tx, free.with_for_update(of=jobs, skip_locked=True))
        for job in stranded:
            self._place(tx, job)
        return len(lost) + len(stranded)

    def foreground_waits(self, tx: Transaction) -> bool:
        """Whether work that comes before the background has found no place for a while."""
        return any(foreground_waits(tx, queue) for queue in self._plain)

    def _opened(self, tx: Transaction, ticket: Ticket) -> Job | None:
        job = lock_job(tx, ticket.job_id)
        valid = job is not None and job.delivery == ticket.delivery and job.status in READY
        return job if valid else None

    def _has_room(self, tx: Transaction, queue: str) -> bool:
        """Whether one more job of the queue may run. Counted here, under a lock: on SQLite two workers that ask the
        durable queue at the same moment are both told yes."""
        rule = self._rules.get(queue)
        if rule is None or rule.concurrency is None:
            return True
        tx.lock_keys(f"queue:{queue}")
        running = (
            sa.select(sa.func.count())
            .select_from(jobs)
            .where(jobs.c.queue == queue, jobs.c.status == str(JobStatus.STARTED))
        )
        return tx.connection.execute(running).scalar_one() < rule.concurrency

    def _start(self, tx: Transaction, job: Job, process_id: str) -> Job | None:
        if job.key is not None and self._must_wait(tx, job):
            _set(tx, job, status=JobStatus.WAITING)
            return None
        running = replace(
            job, status=JobStatus.STARTED, process_id=process_id, started_at=tx.now, attempt=job.attempt + 1
        )
        _set(
            tx,
            job,
            status=running.status,
            process_id=process_id,
            started_at=running.started_at,
            attempt=running.attempt,
        )
        return running

    def _must_wait(self, tx: Transaction, job: Job) -> bool:
        """Whether another job of the key runs, or stands before this one in line. The key must be locked."""
        running = sa.select(sa.literal(1)).where(
            jobs.c.key == job.key, jobs.c.status == str(JobStatus.STARTED)
        )
        before = sa.select(sa.literal(1)).where(
            jobs.c.key == job.key,
            jobs.c.status.in_([str(status) for status in _IN_LINE]),
            sa.tuple_(jobs.c.priority, jobs.c.id) < (job.priority, job.id),
        )
        return bool(tx.connection.execute(sa.select(sa.or_(running.exists(), before.exists()))).scalar())

    def _place(self, tx: Transaction, job: Job, *, delay_seconds: float = 0, **values: Any) -> None:
        """Put the job back in line under a new ticket."""
        ticket = Ticket(job.id, job.delivery + 1)
        values["status"] = JobStatus.SCHEDULED if delay_seconds else JobStatus.QUEUED
        if delay_seconds:
            values["due_at"] = tx.now + int(delay_seconds * 1000)
        self._leave(tx, job, process_id=None, delivery=ticket.delivery, **values)
        self._send(tx, ticket, job.queue, job.priority, delay_seconds)

    def _send(self, tx: Transaction, ticket: Ticket, queue: str, priority: int, delay_seconds: float) -> None:
        if delay_seconds or queue in self._limited:
            self._delivery.post(
                tx.connection, ticket, queue=queue, priority=priority, delay_seconds=delay_seconds
            )
        else:
            tx.announce(Topic.JOBS)

    def _end(self, tx: Transaction, job: Job, status: JobStatus, **values: Any) -> None:
        self._leave(tx, job, status=status, ended_at=tx.now, **values)
        tally = {"queue": job.queue, "status": str(status), "process_id": job.process_id or "", "count": 1}
        _TALLY.tell(tx.connection, tally)

    def _cancel(self, tx: Transaction, job: Job, reason: str) -> None:
        self._end(tx, job, JobStatus.CANCELLED, error=reason)
        tx.event("job.cancelled", job_id=job.id, run_id=job.run_id, message=reason)
        if not _has_successor(tx, job):
            _strand_run(tx, job, RunStatus.BLOCKED, f"its job was cancelled: {reason}")

    def _leave(self, tx: Transaction, job: Job, **values: Any) -> None:
        """Change the job and let the next of its key go on. Raises `Superseded` when a started job is not ours."""
        if job.status is JobStatus.STARTED:
            values["status"] = str(values["status"])
            changed = tx.connection.execute(_UPDATE_OWNED, {"which": job.id, "held": job.delivery, **values})
            if changed.rowcount != 1:
                raise superseded(job)
        else:
            _set(tx, job, **values)
        if job.key is not None:
            self._pass_key(tx, job)

    def _pass_key(self, tx: Transaction, job: Job) -> None:
        # Whoever must wait has written it down under the same lock before we look.
        tx.lock_keys(f"job:{job.key}")
        query = (
            sa.select(jobs)
            .where(jobs.c.key == job.key, jobs.c.status == str(JobStatus.WAITING), jobs.c.id != job.id)
            .order_by(jobs.c.priority, jobs.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        for waiting in read_jobs(tx, query):
            _set(tx, waiting, status=JobStatus.QUEUED, delivery=waiting.delivery + 1)
            ticket = Ticket(waiting.id, waiting.delivery + 1)
            self._send(tx, ticket, waiting.queue, waiting.priority, 0)


def _set(tx: Transaction, job: Job, **values: Any) -> None:
    if "status" in values:
        values["status"] = str(values["status"])
    tx.connection.execute(_UPDATE, {"which": job.id, **values})


def _has_successor(tx: Transaction, job: Job) -> bool:
    """Whether its run was resumed before the job had stopped, so that another one is there to carry it."""
    if job.run_id is None or not job.carries_run:
        return False
    newest = last_carrier(tx, job.run_id)
    return newest is not None and newest.id != job.id and not newest.status.final


def _strand_run(tx: Transaction, job: Job, to: RunStatus, reason: str) -> None:
    """A run whose carrier has ended before it stands still: say so, unless it was paused or has ended itself."""
    if job.run_id is None or not job.carries_run:
        return
    status = get_run(tx, job.run_id).status
    if not status.final and status is not RunStatus.PAUSED:
        change_run(tx, job.run_id, to, reason=reason)


def check_priority(priority: int) -> None:
    if not 0 <= priority <= BACKGROUND:
        raise Misuse(f"priority {priority} is out of range", hint="0 is the most urgent, 9 the least")


def _check(priority: int, delay_seconds: float, max_attempts: int | None) -> None:
    check_priority(priority)
    if not math.isfinite(delay_seconds):
        raise Misuse(f"a delay of {delay_seconds} seconds cannot be kept")
    if max_attempts is not None and max_attempts < 1:
        raise Misuse(f"max_attempts {max_attempts} would never try")


def _tries(job: Job) -> dict[str, Any]:
    return {"kind": job.kind, "attempt": job.attempt, "max_attempts": job.max_attempts}
