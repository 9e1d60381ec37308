"""The operations on schedules."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Self

from ratchet.operations import Listing, Param, described, filled, operation
from ratchet.runtime.call import Call
from ratchet.runtime.schedules import (
    Missed,
    Schedule,
    fire_now,
    get_schedule,
    list_schedules,
    remove_schedule,
    set_schedule_paused,
)
from ratchet.runtime.timetable import Timetable, read_when

ScheduleName = Annotated[str, Param("The name of a schedule.", metavar="SCHEDULE")]
Count = Annotated[int, Param("So many times.", least=1, most=1000)]
When = Annotated[
    str,
    Param("plain English, or cron of five fields, or six with seconds first", metavar="WHEN", also="cron"),
]
Zone = Annotated[str, Param("Such as Europe/Berlin.", metavar="ZONE")]
SHOWN = 3


@dataclass(frozen=True, slots=True)
class ScheduleAnswer:
    """A schedule with what it means and when it comes next."""

    name: str
    cron: str
    words: str | None = field(metadata=described("as a person said it, when not as cron"))
    meaning: str = field(metadata=described("the cron expression in words"))
    timezone: str
    kind: str
    queue: str
    key: str | None
    payload: Any
    priority: int
    background: bool
    missed: Missed
    paused: bool
    created_at: int
    last_fired_at: int | None
    next_at: int | None = field(metadata=described("when it fires next; null while it is paused"))
    next: list[datetime] = field(metadata=described("its next three times"))

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        upcoming = schedule.upcoming(time.time(), SHOWN)
        first = int(upcoming[0].timestamp() * 1000) if upcoming else None
        return filled(cls, schedule, next_at=first, next=upcoming)


@dataclass(frozen=True, slots=True)
class Times:
    cron: str
    meaning: str = field(metadata=described("the cron expression in words"))
    timezone: str
    next: list[datetime]


@dataclass(frozen=True, slots=True)
class Started:
    job_id: int


@dataclass(frozen=True, slots=True)
class Removed:
    name: str
    removed: bool = True


def local(moment: datetime) -> str:
    """A moment as the clocks of its zone show it."""
    return moment.strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _state(schedule: ScheduleAnswer) -> str:
    return "paused" if schedule.paused else "active"


def _priority(schedule: ScheduleAnswer) -> str:
    return "background" if schedule.background else str(schedule.priority)


@operation(
    "schedule list",
    "GET /schedules",
    examples=["ratchet schedule list"],
    see=["schedule add", "workflow schedule"],
    columns={
        "schedule": "name",
        "when": lambda schedule: schedule.words or schedule.meaning,
        "timezone": "timezone",
        "kind": "kind",
        "queue": "queue",
        "priority": _priority,
        "state": _state,
        "next": "next_at",
        "last": "last_fired_at",
    },
    empty="No schedules yet. `ratchet schedule add NAME WHEN KIND` makes one.",
)
def list_(call: Call) -> Listing[ScheduleAnswer]:
    """List schedules with their next time.

    By name, all at once. Jobs are made by workers: without `ratchet worker` or `ratchet serve` nothing happens.
    """
    with call.read() as tx:
        return Listing([ScheduleAnswer.of(each) for each in list_schedules(tx)])


@operation(
    "schedule show",
    "GET /schedules/{name}",
    examples=["ratchet schedule show nightly"],
    columns={
        "schedule": "name",
        "said": "words",
        "meaning": "meaning",
        "cron": "cron",
        "timezone": "timezone",
        "kind": "kind",
        "queue": "queue",
        "key": "key",
        "priority": _priority,
        "missed": "missed",
        "state": _state,
        "next": lambda schedule: "\n".join(map(local, schedule.next)) or None,
        "last": "last_fired_at",
        "payload": "payload",
    },
)
def show(call: Call, name: ScheduleName) -> ScheduleAnswer:
    """Show one schedule and its next times.

    What was said, how it was understood, and the next three times.
    """
    with call.read() as tx:
        return ScheduleAnswer.of(get_schedule(tx, name))


@operation("schedule times", "GET /schedules/{name}/next")
def next_times(call: Call, name: ScheduleName, count: Count = SHOWN) -> Times:
    """Show the next times of a schedule; none while it is paused."""
    with call.read() as tx:
        found = get_schedule(tx, name)
    table = found.timetable
    return Times(table.cron, found.meaning, table.timezone, found.upcoming(time.time(), count))


@operation("schedule read", "POST /schedules/read", changes_nothing=True)
def read(
    call: Call,  # noqa: ARG001
    when: When,
    timezone: Zone = "UTC",
    count: Count = SHOWN,
) -> Times:
    """What a time means and when it comes, without making anything."""
    return times_of(when, timezone, count)


def times_of(said: str, timezone: str, count: int) -> Times:
    when = read_when(said)
    table = Timetable(when.cron, timezone)
    return Times(table.cron, when.words, table.timezone, table.upcoming(time.time(), count))


@operation(
    "schedule pause",
    "POST /schedules/{name}/pause",
    examples=["ratchet schedule pause nightly"],
    see=["schedule resume", "schedule remove"],
    done="Schedule {it.name} is paused",
    then="`ratchet schedule resume {it.name}` resumes it",
)
def pause(call: Call, name: ScheduleName) -> ScheduleAnswer:
    """Pause a schedule.

    No jobs are made until `ratchet schedule resume`, and none are made up for then.
    """
    return _set_paused(call, name, paused=True)


@operation(
    "schedule resume",
    "POST /schedules/{name}/resume",
    examples=["ratchet schedule resume nightly"],
    done="Schedule {it.name} is resumed",
)
def resume(call: Call, name: ScheduleName) -> ScheduleAnswer:
    """Resume a paused schedule.

    What would have come while it was paused is not made up for.
    """
    return _set_paused(call, name, paused=False)


@operation("schedule run", "POST /schedules/{name}/run", status=202, done="Job {it.job_id} is queued")
def run(call: Call, name: ScheduleName) -> Started:
    """Make one job of a schedule at once, although its time has not come.

    Its times stay as they are.
    """
    with call.write() as tx:
        return Started(fire_now(tx, call.runtime.jobs, name))


@operation(
    "schedule remove",
    "DELETE /schedules/{name}",
    examples=["ratchet schedule remove nightly"],
    see=["schedule pause"],
    done="Schedule {it.name} is removed",
    status=204,
)
def remove(call: Call, name: ScheduleName) -> Removed:
    """Remove a schedule.

    Jobs that it has made stay as they are.
    """
    with call.write() as tx:
        remove_schedule(tx, name)
    return Removed(name)


def _set_paused(call: Call, name: str, *, paused: bool) -> ScheduleAnswer:
    with call.write() as tx:
        set_schedule_paused(tx, name, paused)
        return ScheduleAnswer.of(get_schedule(tx, name))


OPERATIONS = (list_, show, next_times, read, pause, resume, run, remove)
