"""Claiming: which jobs a worker starts next, within the limits of their queue over the whole fleet.

A job waits for its time as `scheduled`, for its key as `waiting`, and for a worker as `queued`. Workers take queued
jobs with `FOR UPDATE SKIP LOCKED`, so none waits for the rows of another, and the most urgent first. What is claimed is
leased to the worker's process, see `ratchet.runtime.job`.

Whoever makes a job ready rings the ledger's bell. Only time passes without a ring: `look` says when to look again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from ratchet.ledger import Topic
from ratchet.ledger.tables import job_starts, jobs, processes, queues
from ratchet.runtime.job import BACKGROUND, Job, JobStatus, read_jobs, set_job
from ratchet.runtime.processes import ALIVE

if TYPE_CHECKING:
    from ratchet.ledger import Transaction
    from ratchet.runtime.job import Job


@dataclass(frozen=True, slots=True)
class QueueRule:
    """The limits of a queue over the whole fleet; `None` is no limit."""

    name: str
    concurrency: int | None = None
    rate_limit: int | None = None
    rate_seconds: float | None = None

    @property
    def limited(self) -> bool:
        return self.concurrency is not None or self.rate_limit is not None

    @property
    def window_ms(self) -> int:
        """How far back the rate limit looks."""
        return int((self.rate_seconds or 0) * 1000)


def room(tx: Transaction, rule: QueueRule) -> int:
    """How many more jobs of a limited queue may start now. The answer holds until the transaction ends."""
    tx.lock_keys(f"queue:{rule.name}")
    free = []
    if rule.concurrency is not None:
        running = sa.select(sa.func.count()).where(
            jobs.c.queue == rule.name, jobs.c.status == str(JobStatus.STARTED)
        )
        free.append(rule.concurrency - tx.connection.execute(running).scalar_one())
    if rule.rate_limit is not None:
        _forget_old_starts(tx, rule)
        lately = sa.select(sa.func.count()).where(job_starts.c.queue == rule.name)
        free.append(rule.rate_limit - tx.connection.execute(lately).scalar_one())
    return max(0, min(free))


def count_start(tx: Transaction, rule: QueueRule, job: Job) -> None:
    """Have a start count against the rate limit of its queue."""
    if rule.rate_limit is not None:
        start = {"job_id": job.id, "delivery": job.delivery, "queue": job.queue, "at": tx.now}
        tx.connection.execute(sa.insert(job_starts), start)


def reopens_at(tx: Transaction, rule: QueueRule) -> int | None:
    """When the oldest start stops to count against the rate limit of a queue."""
    oldest = sa.select(sa.func.min(job_starts.c.at)).where(
        job_starts.c.queue == rule.name, job_starts.c.at > tx.now - rule.window_ms
    )
    at: int | None = tx.connection.execute(oldest).scalar()
    return None if at is None else at + rule.window_ms


def _forget_old_starts(tx: Transaction, rule: QueueRule) -> None:
    # One that lies far ahead was written by a clock that was wrong.
    outside = sa.or_(job_starts.c.at <= tx.now - rule.window_ms, job_starts.c.at > tx.now + rule.window_ms)
    tx.connection.execute(sa.delete(job_starts).where(job_starts.c.queue == rule.name, outside))


# A job that can start is taken within milliseconds; one that lies longer has found no place.
WAITS_SECONDS = 0.5

_WAITING = (
    sa.select(sa.literal(1))
    .where(
        jobs.c.queue == sa.bindparam("wanted"),
        jobs.c.status == sa.literal_column("'queued'"),
        jobs.c.priority < BACKGROUND,
        jobs.c.due_at <= sa.bindparam("before"),
    )
    .where(~sa.exists().where(queues.c.name == sa.bindparam("wanted"), queues.c.paused))
    .limit(1)
)
_RUNNING = (
    sa.select(sa.func.count())
    .select_from(jobs)
    .where(
        jobs.c.process_id == sa.bindparam("process"),
        jobs.c.status == sa.literal_column(f"'{JobStatus.STARTED}'"),
        jobs.c.priority >= BACKGROUND,
    )
)
_SLOTS = sa.select(processes.c.slots).where(processes.c.id == sa.bindparam("process"))


def has_room_behind(tx: Transaction, process_id: str) -> bool:
    """Whether one more background job may run on a process. The answer holds until the transaction ends."""
    if not tx.try_lock_key(f"background:{process_id}"):
        # Another thread of the process is starting one this moment.
        return False
    slots = tx.connection.execute(_SLOTS, {"process": process_id}).scalar()
    running = tx.connection.execute(_RUNNING, {"process": process_id}).scalar_one()
    return slots is not None and running < max(1, slots - 1)


def foreground_waits(tx: Transaction, queue: str) -> bool:
    """Whether a job of the queue that comes before the background has found no place for a while."""
    before = tx.now - int(WAITS_SECONDS * 1000)
    return tx.connection.execute(_WAITING, {"wanted": queue, "before": before}).first() is not None


Rules = Mapping[str, QueueRule]

_BATCH = 500
_OTHER = jobs.alias("other")
_SCHEDULED = jobs.c.status == sa.literal_column(f"'{JobStatus.SCHEDULED}'")

# Built once: they run for every job, and building a statement takes longer than running it.
_NEXT_DUE = sa.select(jobs.c.due_at).where(_SCHEDULED).order_by(jobs.c.due_at).limit(1)
_DUE = (
    sa.select(jobs.c.id)
    .where(_SCHEDULED, jobs.c.due_at <= sa.bindparam("now"))
    .order_by(jobs.c.due_at)
    .limit(_BATCH)
    .with_for_update(skip_locked=True)
)
_IN_QUEUE = sa.select(jobs).where(
    jobs.c.queue == sa.bindparam("wanted"),
    jobs.c.status == sa.literal_column("'queued'"),
    # Not by the job's own queue: PostgreSQL would take it for rare that one is left, and sort all that are queued.
    ~sa.exists().where(queues.c.name == sa.bindparam("wanted"), queues.c.paused),
)
_ANY = _IN_QUEUE.with_only_columns(sa.literal(1)).limit(1)
_READY = (
    _IN_QUEUE.where(
        sa.exists().where(processes.c.id == sa.bindparam("process"), processes.c.state.in_(ALIVE))
    )
    .order_by(jobs.c.priority, jobs.c.id)
    .limit(sa.bindparam("most"))
    .with_for_update(of=jobs, skip_locked=True)
)

_OF_RUN = (
    sa.select(jobs)
    .where(
        jobs.c.run_id == sa.bindparam("run"),
        jobs.c.queue == sa.bindparam("wanted"),
        # Also what waits behind another run of its line, which may have been cut off.
        jobs.c.status.in_([sa.literal_column("'queued'"), sa.literal_column("'waiting'")]),
        sa.exists().where(processes.c.id == sa.bindparam("process"), processes.c.state.in_(ALIVE)),
        ~sa.exists().where(queues.c.name == sa.bindparam("wanted"), queues.c.paused),
    )
    .order_by(jobs.c.priority, jobs.c.id)
    .limit(sa.bindparam("most"))
    .with_for_update(of=jobs, skip_locked=True)
)


def must_wait(key: Any, priority: Any, number: Any) -> sa.ColumnElement[bool]:
    """Whether another job of the key runs, or comes before this one in the queue."""
    same = _OTHER.c.key == key
    running = sa.exists().where(same, _OTHER.c.status == sa.literal_column("'started'"))
    # Spelled out, so that SQLite finds the index of exactly these.
    in_line = _OTHER.c.status.in_([sa.literal_column("'queued'"), sa.literal_column("'waiting'")])
    before = sa.tuple_(_OTHER.c.priority, _OTHER.c.id) < sa.tuple_(priority, number)
    return sa.or_(running, sa.exists().where(same, in_line, before))


_MUST_WAIT = sa.select(must_wait(sa.bindparam("key"), sa.bindparam("priority"), sa.bindparam("id")))
_KEY_RUNS = sa.select(
    sa.exists().where(_OTHER.c.key == sa.bindparam("key"), _OTHER.c.status == sa.literal_column("'started'"))
)


class QueueLook(NamedTuple):
    """What a look for jobs came to. `again_at` is when another is worth it though nobody rings, in milliseconds since
    1970: a job is due, or the rate limit of a queue lets the next one start."""

    claimed: list[Job]
    again_at: int | None


def look(tx: Transaction, rules: Rules, process_id: str, most: int, run_id: int | None = None) -> QueueLook:
    """Claim jobs, and first queue those whose time has come."""
    next_due = queue_due(tx)
    claimed = claim(tx, rules, process_id, most, run_id)
    rated = [rule for rule in rules.values() if rule.rate_limit is not None and _has_ready(tx, rule.name)]
    moments = [next_due, *(reopens_at(tx, rule) for rule in rated)]
    return QueueLook(claimed, min((moment for moment in moments if moment is not None), default=None))


def claim(tx: Transaction, rules: Rules, process_id: str, most: int, run_id: int | None = None) -> list[Job]:
    """Start up to `most` jobs on this process, the most urgent first. Those whose key is busy are made to wait, and
    background ones are left when they would take the last place. With a `run_id` only jobs of that run: they wait for
    what runs under their key, and not for what is queued before them."""
    places = _places(tx, rules, most)
    started: list[Job] = []
    passed_over: set[int] = set()
    contended = False
    more = True
    while more and len(started) < most:
        wanted = most - len(started)
        ready, more = _ready(tx, process_id, places, wanted, passed_over, run_id)
        more = more or len(ready) > wanted
        for job in ready[:wanted]:
            if not places[job.queue]:
                continue
            if job.background and not has_room_behind(tx, process_id):
                # Only background jobs come after this one.
                more = False
                break
            if job.key is not None and not tx.try_lock_key(f"job:{job.key}"):
                passed_over.add(job.id)
                contended = True
            elif (
                running := _start(tx, job, process_id, _MUST_WAIT if run_id is None else _KEY_RUNS)
            ) is None:
                passed_over.add(job.id)
            else:
                started.append(running)
                places[job.queue] -= 1
                count_start(tx, rules[job.queue], running)
    if contended:
        # Somebody is changing their keys this moment; look again right after.
        tx.announce(Topic.JOBS)
    return started


def queue_due(tx: Transaction) -> int | None:
    """Queue scheduled jobs whose time has come; when that of the next one comes."""
    next_due = _next_due(tx)
    if next_due is None or next_due > tx.now:
        return next_due
    due = tx.connection.execute(_DUE, {"now": tx.now}).scalars().all()
    if due:
        queued = sa.update(jobs).where(jobs.c.id.in_(due)).values(status=str(JobStatus.QUEUED))
        tx.connection.execute(queued)
        # For the others: they passed over these rows while we held them, and may have room.
        tx.announce(Topic.JOBS)
    return _next_due(tx)


def _next_due(tx: Transaction) -> int | None:
    due_at: int | None = tx.connection.execute(_NEXT_DUE).scalar()
    return due_at


def _places(tx: Transaction, rules: Rules, most: int) -> dict[str, int]:
    """How many jobs may be started of each queue that has some.

    The locks of limited queues are taken here, in the order of their names. Whoever waits for one may hold rows and
    keys; whoever has one waits for nothing but a later one.
    """
    places = {}
    for name in sorted(rules):
        if not rules[name].limited:
            places[name] = most
        elif most and _has_ready(tx, name):
            places[name] = min(most, room(tx, rules[name]))
    return places


def _has_ready(tx: Transaction, queue: str) -> bool:
    return tx.connection.execute(_ANY, {"wanted": queue}).first() is not None


def _ready(
    tx: Transaction,
    process_id: str,
    places: dict[str, int],
    wanted: int,
    passed_over: set[int],
    run_id: int | None,
) -> tuple[list[Job], bool]:
    """At least the `wanted` most urgent jobs of queues that have places, and whether there may be more."""
    found: list[Job] = []
    more = False
    for queue in (name for name, free in places.items() if free):
        most = min(wanted, places[queue]) + len(passed_over)
        values = {"wanted": queue, "process": process_id, "most": most}
        rows = read_jobs(tx, *((_READY, values) if run_id is None else (_OF_RUN, {**values, "run": run_id})))
        found += [job for job in rows if job.id not in passed_over]
        more = more or len(rows) == most
    return sorted(found, key=lambda job: (job.priority, job.id)), more


def _start(tx: Transaction, job: Job, process_id: str, wait: sa.Select[Any]) -> Job | None:
    """The job, leased to a process; `None` if it must wait for its key, which is locked."""
    if (
        job.key is not None
        and tx.connection.execute(wait, {"key": job.key, "priority": job.priority, "id": job.id}).scalar()
    ):
        set_job(tx, job, status=JobStatus.WAITING)
        return None
    lease: dict[str, Any] = {
        "status": JobStatus.STARTED,
        "process_id": process_id,
        "started_at": tx.now,
        "attempt": job.attempt + 1,
    }
    set_job(tx, job, **lease)
    return replace(job, **lease)
