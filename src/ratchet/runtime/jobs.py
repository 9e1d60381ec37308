"""What happens to jobs, as transactions on the ledger, and queues as people see them.

The job's row is the truth, and the table is the queue: enqueued, a job is `queued`, or `scheduled` when it has to wait
for its time; any worker with room claims it (`ratchet.runtime.claim`). Whatever ends a try or hands the job over raises
the number of its delivery in the same transaction, so that the worker before cannot write any more.

Transactions lock a job's row first, its key second and a queue's limits last; under a key nobody waits for a row, and
under a queue's lock for nothing but that of a later queue. So no two wait for each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, JobId, Misuse, NotFound, Outcome, RunStatus, StepStatus
from ratchet.ledger import Topic, Transaction, change_run, change_step, to_json
from ratchet.ledger.runs import close_attempt, get_run, unended_attempt
from ratchet.ledger.tables import attempts, job_tallies, jobs, queues, stages, steps, trials
from ratchet.ledger.transaction import upsert
from ratchet.ledger.usage import finished_stages
from ratchet.runtime.claim import QueueLook, QueueRule, claim, foreground_waits, look, must_wait
from ratchet.runtime.job import (
    BACKGROUND,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    IDLE,
    Job,
    JobStatus,
    count_jobs,
    end_lease,
    get_job,
    last_carrier,
    lock_job,
    read_jobs,
    set_job,
)

if TYPE_CHECKING:
    from ratchet.config import Settings
    from ratchet.runtime.claim import QueueRule
    from ratchet.runtime.job import RetryPolicy
    from ratchet.runtime.runtime import Kinds


MAX_PAYLOAD_BYTES = 1024 * 1024
_BATCH = 500

# Built once: they run for every job, and building a statement takes longer than running it.
_INSERT = sa.insert(jobs).returning(jobs.c.id)
_TALLY = upsert(
    job_tallies, ("queue", "status", "process_id"), lambda _new: {"count": job_tallies.c["count"] + 1}
)


class Jobs:
    """The life of jobs: enqueue; claim; then one of finish, fail, release or stopped."""

    def __init__(self, rules: dict[str, QueueRule], kinds: Kinds, policy: RetryPolicy) -> None:
        self._rules = rules
        self._kinds = kinds
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
        tx.announce(Topic.JOBS)
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

    def claim(self, tx: Transaction, process_id: str, most: int, run_id: int | None = None) -> list[Job]:
        """Start up to `most` jobs on this process, the most urgent first; with a `run_id` only those of that run."""
        return claim(tx, self._rules, process_id, most, run_id)

    def look(self, tx: Transaction, process_id: str, most: int, run_id: int | None = None) -> QueueLook:
        """Queue jobs whose time has come, then claim; and when to look again."""
        return look(tx, self._rules, process_id, most, run_id)

    def finish(self, tx: Transaction, job: Job, result: Any) -> None:
        """Record success."""
        self._end(tx, job, JobStatus.FINISHED, result=result, error=None)

    def fail(
        self,
        tx: Transaction,
        job: Job,
        error: str,
        *,
        final: bool = False,
        run_becomes: RunStatus = RunStatus.FAILED,
    ) -> JobStatus:
        """Record a failed try: the job is scheduled again, or failed for good. A run that stands is left as it is."""
        stopped = _stopped_run(tx, job) is not None
        if final or stopped or job.attempt >= job.max_attempts:
            self._end(tx, job, JobStatus.FAILED, error=error)
            tx.event("job.failed", job_id=job.id, run_id=job.run_id, message=error, data=_tries(job))
            if not stopped and not _has_successor(tx, job):
                _strand_run(tx, job, run_becomes, error)
            return JobStatus.FAILED
        pause = self._policy.pause_seconds(job.attempt)
        self._place(tx, job, delay_seconds=pause, error=error)
        data = {**_tries(job), "retry_in_seconds": pause}
        tx.event("job.retrying", job_id=job.id, run_id=job.run_id, message=error, data=data)
        return JobStatus.SCHEDULED

    def postpone(self, tx: Transaction, job: Job, reason: str, *, bounded: bool = False) -> JobStatus:
        """Put a started job off that found no room on its machine; this try does not count, however often it comes.

        With `bounded` it counts like the death of its worker, since the job may be what takes all the room.
        """
        held = lock_job(tx, job.id)
        if (held is not None and held.stop is not None) or _stopped_run(tx, job) is not None:
            self.release(tx, job, reason)
            return JobStatus.QUEUED
        recoveries = job.recoveries
        if bounded:
            recoveries = 0 if _has_progressed(tx, job) else recoveries
            if recoveries >= self._policy.max_recoveries:
                reason = f"{reason} ({recoveries + 1} times in a row without progress, though the machine has room)"
                return self.fail(tx, job, reason, final=True, run_becomes=RunStatus.BLOCKED)
            recoveries += 1
        pause = self._policy.pause_seconds(job.delivery)
        self._place(
            tx, job, delay_seconds=pause, attempt=job.attempt - 1, recoveries=recoveries, error=reason
        )
        data = {**_tries(job), "retry_in_seconds": pause}
        tx.event("job.retrying", job_id=job.id, run_id=job.run_id, message=reason, data=data)
        return JobStatus.SCHEDULED

    def release(self, tx: Transaction, job: Job, reason: str = "its worker could not continue") -> None:
        """Give a started job back unfinished; this try does not count.

        One whose stop was asked for has ended, and so has one in which its run was blocked or ended: resuming the run
        queues another.
        """
        held = lock_job(tx, job.id)
        if held is not None and held.stop is not None:
            self.stopped(tx, job)
            return
        if (status := _stopped_run(tx, job)) is not None:
            self.finish(tx, job, {"waiting": f"run {job.run_id} is {status}"})
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
            raise Conflict(
                f"job {job_id} is {job.status}; only an unfinished job can be stopped",
                hint="nothing is to be done: it has ended",
            )
        if job.status in IDLE:
            self._cancel(tx, job, reason)
            return JobStatus.CANCELLED
        set_job(tx, job, stop=reason)
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
                continue
            if (status := _stopped_run(tx, job)) is not None:
                self.finish(tx, job, {"waiting": f"run {job.run_id} is {status}"})
                continue
            progressed = _has_progressed(tx, job)
            if not progressed and job.recoveries >= self._policy.max_recoveries:
                reason = f"its worker died {job.recoveries + 1} times in a row without progress"
                self.fail(tx, job, reason, final=True, run_becomes=RunStatus.BLOCKED)
            else:
                tx.event("job.recovered", job_id=job.id, run_id=job.run_id, message=f"{process_id} is gone")
                # The interrupted try does not count: the job did nothing wrong.
                self._place(
                    tx, job, attempt=job.attempt - 1, recoveries=1 if progressed else job.recoveries + 1
                )
        return len(orphans)

    def free_stranded(self, tx: Transaction) -> int:
        """Queue jobs that wait for a key which is free; how many there were. Nothing should leave any."""
        free = ~must_wait(jobs.c.key, jobs.c.priority, jobs.c.id)
        query = sa.select(jobs).where(jobs.c.status == str(JobStatus.WAITING), free).limit(_BATCH)
        stranded = read_jobs(tx, query.with_for_update(of=jobs, skip_locked=True))
        for job in stranded:
            _queue_again(tx, job)
        return len(stranded)

    def foreground_waits(self, tx: Transaction) -> bool:
        """Whether work that comes before the background has found no place for a while."""
        return any(foreground_waits(tx, name) for name, rule in self._rules.items() if not rule.limited)

    def _place(self, tx: Transaction, job: Job, *, delay_seconds: float = 0, **values: Any) -> None:
        """Queue the job again, for a new delivery."""
        values["status"] = JobStatus.SCHEDULED if delay_seconds else JobStatus.QUEUED
        if delay_seconds:
            values["due_at"] = tx.now + int(delay_seconds * 1000)
        self._leave(tx, job, process_id=None, delivery=job.delivery + 1, **values)
        tx.announce(Topic.JOBS)

    def _end(self, tx: Transaction, job: Job, status: JobStatus, **values: Any) -> None:
        self._leave(tx, job, status=status, ended_at=tx.now, **values)
        tally = {"queue": job.queue, "status": str(status), "process_id": job.process_id or "", "count": 1}
        tx.connection.execute(_TALLY(tx.dialect), tally)

    def _cancel(self, tx: Transaction, job: Job, reason: str) -> None:
        self._end(tx, job, JobStatus.CANCELLED, error=reason)
        tx.event("job.cancelled", job_id=job.id, run_id=job.run_id, message=reason)
        if not _has_successor(tx, job):
            _strand_run(tx, job, RunStatus.BLOCKED, f"its job was cancelled: {reason}")

    def _leave(self, tx: Transaction, job: Job, **values: Any) -> None:
        """Change the job and let the next of its key continue. Raises `Superseded` when a started job is not ours."""
        if job.status is JobStatus.STARTED:
            end_lease(tx, job, {**values, "status": str(values["status"])})
            rule = self._rules.get(job.queue)
            if rule is not None and rule.limited:
                # Others may have waited for its place in the queue.
                tx.announce(Topic.JOBS)
        else:
            set_job(tx, job, **values)
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
            _queue_again(tx, waiting)


def _queue_again(tx: Transaction, waiting: Job) -> None:
    set_job(tx, waiting, status=JobStatus.QUEUED)
    tx.announce(Topic.JOBS)


def _has_successor(tx: Transaction, job: Job) -> bool:
    """Whether its run was resumed before the job had stopped, so that another one is there to carry it."""
    if job.run_id is None or not job.carries_run:
        return False
    newest = last_carrier(tx, job.run_id)
    return newest is not None and newest.id != job.id and not newest.status.final


def _stopped_run(tx: Transaction, job: Job) -> RunStatus | None:
    """The status of the run that a started job carries, if the run was paused, blocked or ended during this try.

    The job has nothing more to do then. One that was queued for a run that stood already, to publish it say, has.
    """
    if job.run_id is None or not job.carries_run or job.started_at is None:
        return None
    run = get_run(tx, job.run_id)
    return run.status if run.status.stands and run.updated_at > job.started_at else None


def _strand_run(tx: Transaction, job: Job, to: RunStatus, reason: str) -> None:
    """A run whose carrier has ended before it stops: say so. One that stands keeps its own reason."""
    if job.run_id is None or not job.carries_run:
        return
    if not get_run(tx, job.run_id).status.stands:
        change_run(tx, job.run_id, to, reason=reason)
        _stop_steps(
            tx, job.run_id, StepStatus.BLOCKED if to is RunStatus.BLOCKED else StepStatus.FAILED, reason
        )


def _stop_steps(tx: Transaction, run_id: int, to: StepStatus, reason: str) -> None:
    """Nothing works on the running steps of a run any more. An attempt with a finished stage can be resumed, so in a
    blocked run it stays open."""
    running = sa.select(steps.c.id).where(steps.c.run_id == run_id, steps.c.status == str(StepStatus.RUNNING))
    for step_id in tx.connection.execute(running.order_by(steps.c.id)).scalars().all():
        attempt_id = unended_attempt(tx, step_id)
        if attempt_id is not None and (to is StepStatus.FAILED or not finished_stages(tx, attempt_id)):
            close_attempt(tx, attempt_id, Outcome.ERROR, f"interrupted: {reason}")
        change_step(tx, step_id, to, expected=(StepStatus.RUNNING,), reason=reason)


def _has_progressed(tx: Transaction, job: Job) -> bool:
    """Whether this delivery has recorded something that the next one need not repeat: the end of an attempt, stage,
    step or trial of the run. What only began is no progress: a job that kills its workers begins it each time."""
    if job.run_id is None or job.started_at is None:
        return False
    since, run_id = job.started_at, job.run_id
    behind = [str(status) for status in (StepStatus.NEEDS_QA, StepStatus.COMPLETED, StepStatus.FAILED)]
    recorded = (
        sa.exists().where(
            # One that began earlier was closed in the place of a worker that died.
            attempts.c.run_id == run_id,
            attempts.c.started_at >= since,
            attempts.c.ended_at.is_not(None),
        ),
        sa.exists().where(
            attempts.c.run_id == run_id, stages.c.attempt_id == attempts.c.id, stages.c.at >= since
        ),
        sa.exists().where(steps.c.run_id == run_id, steps.c.updated_at >= since, steps.c.status.in_(behind)),
        sa.exists().where(trials.c.run_id == run_id, trials.c.ended_at >= since),
    )
    return bool(tx.connection.execute(sa.select(sa.or_(*recorded))).scalar())


def check_priority(priority: int) -> None:
    if not 0 <= priority <= BACKGROUND:
        raise Misuse(f"priority {priority} is out of range", hint="0 is the most urgent, 9 the least")


def _check(priority: int, delay_seconds: float, max_attempts: int | None) -> None:
    check_priority(priority)
    if not math.isfinite(delay_seconds):
        raise Misuse(f"a delay of {delay_seconds} seconds cannot be kept", hint="give a number of seconds")
    if max_attempts is not None and max_attempts < 1:
        raise Misuse(f"max_attempts {max_attempts} would never try", hint="give 1 or more")


def _tries(job: Job) -> dict[str, Any]:
    return {"kind": job.kind, "attempt": job.attempt, "max_attempts": job.max_attempts}


class NoSuchQueue(Misuse):
    """No queue of that name is configured."""

    http_status = 404


@dataclass(frozen=True, slots=True)
class QueueState:
    name: str
    paused: bool
    concurrency: int | None
    rate_limit: int | None
    rate_seconds: float | None
    counts: dict[str, int]


def configured_rules(settings: Settings) -> dict[str, QueueRule]:
    return {
        name: QueueRule(name, queue.concurrency, queue.rate_limit, queue.rate_seconds)
        for name, queue in settings.queues.items()
    }


def set_paused(tx: Transaction, rules: dict[str, QueueRule], name: str, paused: bool) -> None:
    """Pause a queue, or resume it. Jobs that run are not touched."""
    _existing(rules, name)
    upsert = tx.insert(queues).values(name=name, paused=paused)
    tx.connection.execute(upsert.on_conflict_do_update(index_elements=["name"], set_={"paused": paused}))
    tx.announce(Topic.JOBS)
    tx.event("queue.paused" if paused else "queue.resumed", message=name)


def paused_queues(tx: Transaction) -> frozenset[str]:
    return frozenset(tx.connection.execute(sa.select(queues.c.name).where(queues.c.paused)).scalars())


def list_queues(tx: Transaction, rules: dict[str, QueueRule]) -> list[QueueState]:
    """Every configured queue, and every other that still holds jobs."""
    counts = count_jobs(tx)
    paused = paused_queues(tx)
    names = [*rules, *sorted(counts.keys() - rules.keys())]
    states = []
    for name in names:
        rule = rules.get(name, QueueRule(name))
        states.append(
            QueueState(
                name=name,
                paused=name in paused,
                concurrency=rule.concurrency,
                rate_limit=rule.rate_limit,
                rate_seconds=rule.rate_seconds,
                counts=counts.get(name, {}),
            )
        )
    return states


def _existing(rules: dict[str, QueueRule], name: str) -> None:
    try:
        known(rules, name)
    except Misuse as error:
        raise NoSuchQueue(str(error), hint=error.hint) from None


def known(rules: dict[str, QueueRule], name: str) -> QueueRule:
    """The rule of a queue, or `Misuse` naming those there are."""
    rule = rules.get(name)
    if rule is None:
        raise Misuse(
            f"there is no queue {name!r}; there are: {', '.join(rules)}",
            hint=f"add [queues.{name}] to ratchet.toml",
        )
    return rule
