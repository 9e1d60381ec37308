"""Schedules: jobs that come again by the clock.

A schedule remembers up to which time it is dealt with. Whoever looks at it takes the times since then, fires them as
its policy for missed ones says, and moves that mark, all in one transaction: whether a time was missed because nobody
was there, or is due this moment, is the same to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.kernel import JobId, Misuse, NotFound, is_name, iso
from ratchet.ledger.tables import schedules
from ratchet.runtime.job import BACKGROUND, DEFAULT_PRIORITY, DEFAULT_QUEUE
from ratchet.runtime.jobs import Jobs, check_priority
from ratchet.runtime.timetable import Timetable, read_when
from ratchet.runtime.timetable.moments import tell

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

# A time that is dealt with later than this was missed.
LATE_SECONDS = 30.0
# So many of the missed times come with `all`: the last ones.
MOST_MISSED = 24
# A mark that lies further ahead was set by a clock that was wrong.
_SKEW_SECONDS = 3600.0


class Missed(StrEnum):
    """What happens to times that passed while nobody was there: one job for all, none, or one for each."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Schedule:
    """`words` is how a person said it, when not as cron. Times up to `seen_at` are dealt with."""

    name: str
    cron: str
    words: str | None
    timezone: str
    kind: str
    queue: str
    key: str | None
    payload: Any
    priority: int
    missed: Missed
    paused: bool
    created_at: int
    last_fired_at: int | None
    seen_at: int

    @property
    def timetable(self) -> Timetable:
        return Timetable(self.cron, self.timezone)

    @property
    def meaning(self) -> str:
        """The cron expression in words."""
        return tell(self.cron)

    @property
    def background(self) -> bool:
        return self.priority >= BACKGROUND

    def next_after(self, moment: float) -> datetime:
        return self.timetable.after(moment)

    def upcoming(self, moment: float, count: int) -> list[datetime]:
        """Its next times; none while it rests, nor once its last date is past."""
        try:
            return [] if self.paused else self.timetable.upcoming(moment, count)
        except Misuse:
            return []

    def waits_for(self) -> float | None:
        """The first time that is not dealt with, in seconds since 1970; nothing if there will be none."""
        first = self.upcoming(self.seen_at / 1000, 1)
        return first[0].timestamp() if first else None

    def due(self, now: float) -> list[datetime]:
        """The times that are to fire now, in order."""
        passed = [] if self.paused else self.timetable.within(self.seen_at / 1000, now, MOST_MISSED)
        match self.missed:
            case Missed.ONCE:
                return passed[-1:]
            case Missed.SKIP:
                return [moment for moment in passed[-1:] if now - moment.timestamp() <= LATE_SECONDS]
            case Missed.ALL:
                return passed


def put_schedule(
    tx: Transaction,
    name: str,
    when: str,
    kind: str,
    payload: Any = None,
    *,
    timezone: str = "UTC",
    queue: str = DEFAULT_QUEUE,
    key: str | None = None,
    priority: int = DEFAULT_PRIORITY,
    missed: Missed | str = Missed.ONCE,
) -> datetime:
    """Make or replace a schedule; returns its first time. Refuses one that never happens again.

    `when` is plain English or a cron expression. Times before now do not count as missed, unless the schedule was there
    with the same times before.
    """
    if not is_name(name):
        raise Misuse(
            f"{name!r} cannot name a schedule", hint="use lower-case letters, digits, dots and dashes"
        )
    check_priority(priority)
    understood = read_when(when)
    first = Timetable(understood.cron, timezone).after(tx.now / 1000)
    said = " ".join(when.split())
    values = {
        "cron": understood.cron,
        "words": None if said == understood.cron else said,
        "timezone": timezone,
        "kind": kind,
        "queue": queue,
        "key": key,
        "payload": payload if payload is not None else {},
        "priority": priority,
        "missed": str(_policy(missed)),
        "paused": False,
    }
    before = _locked(tx, name)
    same = before is not None and (before.timetable == Timetable(understood.cron, timezone))
    if before is None or before.paused or not same:
        values["seen_at"] = tx.now
    insert = tx.insert(schedules).values(name=name, created_at=tx.now, **values)
    tx.connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values))
    tx.event("schedule.set", message=name, data={"cron": understood.cron, "timezone": timezone, "kind": kind})
    return first


def chosen_priority(priority: int | None, background: bool) -> int:
    """The priority that was asked for by number or by name. Raises `Misuse` when both were, and differ."""
    if background and priority not in (None, BACKGROUND):
        raise Misuse(f"background work has priority {BACKGROUND}, not {priority}", hint="give one of the two")
    return BACKGROUND if background else DEFAULT_PRIORITY if priority is None else priority


def set_schedule_paused(tx: Transaction, name: str, paused: bool) -> None:
    """Pause a schedule, or resume it. What would have come while it rested is not made up for."""
    before = _locked(tx, name)
    if before is None:
        raise NotFound("schedule", name)
    seen_at = tx.now if before.paused and not paused else before.seen_at
    change = sa.update(schedules).where(schedules.c.name == name).values(paused=paused, seen_at=seen_at)
    tx.connection.execute(change)
    tx.event("schedule.paused" if paused else "schedule.resumed", message=name)


def remove_schedule(tx: Transaction, name: str) -> None:
    if tx.connection.execute(sa.delete(schedules).where(schedules.c.name == name)).rowcount == 0:
        raise NotFound("schedule", name)
    tx.event("schedule.removed", message=name)


def list_schedules(tx: Transaction) -> list[Schedule]:
    query = sa.select(schedules).order_by(schedules.c.name)
    return [_schedule(row) for row in tx.connection.execute(query).mappings()]


def get_schedule(tx: Transaction, name: str) -> Schedule:
    query = sa.select(schedules).where(schedules.c.name == name)
    row = tx.connection.execute(query).mappings().first()
    if row is None:
        raise NotFound("schedule", name)
    return _schedule(row)


def fire(tx: Transaction, jobs: Jobs, name: str, now: float) -> list[JobId]:
    """Enqueue what is due of a schedule. Any number of processes may do so at once: each time has one job."""
    schedule = _locked(tx, name)
    if schedule is None or schedule.paused:
        return []
    if schedule.seen_at / 1000 > now + _SKEW_SECONDS:
        _mark(tx, name, seen_at=int(now * 1000))
        return []
    passed = schedule.timetable.within(schedule.seen_at / 1000, now, 1)
    if not passed:
        return []
    due = schedule.due(now)
    first = schedule.next_after(schedule.seen_at / 1000).timestamp()
    if now - first > LATE_SECONDS:
        missed = {"since": iso(int(first * 1000)), "policy": str(schedule.missed), "fires": len(due)}
        tx.event("schedule.missed", message=name, data=missed)
    seen = int(passed[-1].timestamp() * 1000)
    try:
        added = [_enqueue(tx, jobs, schedule, moment) for moment in due]
    except Misuse as error:
        # Its kind or its queue is gone. Said once for each time, not once a second.
        tx.event("schedule.failed", message=f"{name}: {error}")
        _mark(tx, name, seen_at=seen)
        return []
    _mark(tx, name, seen_at=seen, **({"last_fired_at": seen} if due else {}))
    return [job_id for job_id in added if job_id is not None]


def fire_now(tx: Transaction, jobs: Jobs, name: str) -> JobId:
    """One job of a schedule at once, whether it rests or not; its times stay as they are. Raises `NotFound`."""
    schedule = get_schedule(tx, name)
    job_id = _enqueue(tx, jobs, schedule)
    assert job_id is not None  # only a job with a `once` may be there already
    tx.event("schedule.run", message=name, job_id=job_id)
    return job_id


def _enqueue(tx: Transaction, jobs: Jobs, schedule: Schedule, moment: datetime | None = None) -> JobId | None:
    """A job of the schedule. The one for a moment is made once, however many processes come to it."""
    return jobs.enqueue(
        tx,
        schedule.kind,
        schedule.payload,
        queue=schedule.queue,
        key=schedule.key,
        priority=schedule.priority,
        once=None if moment is None else f"schedule:{schedule.name}:{int(moment.timestamp())}",
    )


def _mark(tx: Transaction, name: str, **values: int) -> None:
    tx.connection.execute(sa.update(schedules).where(schedules.c.name == name).values(**values))


def _locked(tx: Transaction, name: str) -> Schedule | None:
    query = sa.select(schedules).where(schedules.c.name == name).with_for_update()
    row = tx.connection.execute(query).mappings().first()
    return None if row is None else _schedule(row)


def _schedule(row: sa.RowMapping) -> Schedule:
    filled = {
        "missed": Missed(row["missed"] or Missed.ONCE),
        "priority": DEFAULT_PRIORITY if row["priority"] is None else row["priority"],
        "seen_at": row["seen_at"] or row["last_fired_at"] or row["created_at"],
    }
    return Schedule(**{**row, **filled})


def _policy(missed: Missed | str) -> Missed:
    try:
        return Missed(missed)
    except ValueError:
        raise Misuse(
            f"{missed!r} says not what becomes of missed times", hint=f"use {', '.join(Missed)}"
        ) from None
