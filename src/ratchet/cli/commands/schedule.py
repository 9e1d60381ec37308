"""`ratchet schedule …`"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.numbers import COUNT
from ratchet.cli.opening import existing_ledger, existing_runtime, has_ledger
from ratchet.cli.output import confirm, show_list, show_one
from ratchet.cli.schedules import confirm_set, listed, local, moment, schedule_record, timing_options
from ratchet.cli.times import age
from ratchet.cli.words import compact
from ratchet.kernel import Misuse, NotFound
from ratchet.runtime import Schedule, Timetable, get_schedule, list_schedules, read_when, remove_schedule
from ratchet.runtime.schedules import chosen_priority, set_schedule_paused

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Transaction


@command("list", examples=["ratchet schedule list"], see=["schedule add", "workflow schedule"])
@click.pass_obj
def list_(session: Session) -> None:
    """List schedules with their next time.

    Jobs are made by workers: without `ratchet worker` or `ratchet serve` nothing happens.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_schedules(tx)
    show_list(
        session,
        found,
        {
            "schedule": lambda schedule: schedule.name,
            "when": lambda schedule: schedule.words or schedule.meaning,
            "timezone": lambda schedule: schedule.timezone,
            "kind": lambda schedule: schedule.kind,
            "queue": lambda schedule: schedule.queue,
            "priority": _priority,
            "state": lambda schedule: "paused" if schedule.paused else "active",
            "next": lambda schedule: age(_next(schedule)),
            "last": lambda schedule: age(schedule.last_fired_at),
        },
        record=schedule_record,
        empty="No schedules yet. `ratchet schedule add NAME WHEN KIND` makes one.",
    )


@command(examples=["ratchet schedule show nightly"])
@click.argument("name", metavar="SCHEDULE", help="The name of a schedule.")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show one schedule and its next times.

    What was said, how it was understood, and the next three times.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        schedule = get_schedule(tx, name)
    upcoming = [local(each) for each in schedule.upcoming(time.time(), 3)]
    fields = {
        "schedule": schedule.name,
        "said": schedule.words,
        "meaning": schedule.meaning,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "kind": schedule.kind,
        "queue": schedule.queue,
        "key": schedule.key,
        "priority": _priority(schedule),
        "missed": schedule.missed,
        "state": "paused" if schedule.paused else "active",
        "next": "\n".join(upcoming) or None,
        "last": age(schedule.last_fired_at),
        "payload": compact(schedule.payload),
    }
    show_one(session, schedule_record(schedule), fields)


@command(
    examples=[
        'ratchet schedule add nightly "every night at 2" workflow.optimise --background',
        'ratchet schedule add pulse "every 5 minutes" demo.primes',
        'ratchet schedule add report "0 9 * * 1-5" demo.primes --timezone Europe/Berlin --missed skip',
    ],
    see=["schedule next", "workflow schedule"],
)
@click.argument("name", help="What to call it; one of that name is replaced.")
@click.argument("when", help="The times, in words or as cron.")
@click.argument("kind", help="What kind of job is made.")
@click.option("--payload", metavar="JSON", help="What the job is given; nothing if not given.")
@click.option("--queue", default="default", show_default=True, metavar="QUEUE", help="The queue of its jobs.")
@click.option("--key", metavar="KEY", help="Jobs with the same key never overlap.")
@timing_options
@click.pass_obj
def add(
    session: Session,
    /,
    name: str,
    when: str,
    kind: str,
    payload: str | None,
    priority: int | None,
    background: bool,
    **how: Any,
) -> None:
    """Make or replace a schedule.

    WHEN is plain English or a cron expression of five fields (minute hour day month weekday), or six with seconds
    first; quote it. What cannot be understood exactly is refused. KIND is a kind of job.
    """
    given = _parsed(payload)
    urgency = chosen_priority(priority, background)
    with existing_runtime(session) as runtime, runtime.ledger.write(actor="cli") as tx:
        runtime.put_schedule(tx, name, when, kind, given, priority=urgency, **how)
        schedule = get_schedule(tx, name)
    confirm_set(session, schedule)


@command(
    "next",
    examples=[
        "ratchet schedule next nightly",
        'ratchet schedule next "every monday and friday at 18:30" --timezone Europe/Berlin -n 10',
    ],
)
@click.argument("what", metavar="SCHEDULE|WHEN", help="The name of a schedule, or times in words or as cron.")
@click.option("--count", "-n", type=COUNT, default=3, show_default=True, help="So many times.")
@click.option("--timezone", metavar="ZONE", help="For a WHEN; UTC if not given.")
@click.pass_obj
def next_(session: Session, what: str, count: int, timezone: str | None) -> None:
    """Show the next times of a schedule, or of a time as it is said.

    A good way to try how a WHEN is understood before it is used. It needs no ledger.
    """
    schedule = _known(session, what)
    if schedule is not None and timezone is not None:
        raise Misuse(
            f"schedule {what} has its own time zone, {schedule.timezone}", hint="leave --timezone out"
        )
    if schedule is not None:
        table, meaning = schedule.timetable, schedule.meaning
        moments = schedule.upcoming(time.time(), count)
    else:
        when = read_when(what)
        table, meaning = Timetable(when.cron, timezone or "UTC"), when.words
        moments = table.upcoming(time.time(), count)
    document = {
        "cron": table.cron,
        "meaning": meaning,
        "timezone": table.timezone,
        "next": [moment(each) for each in moments],
    }
    told = [
        f"{meaning} ({table.timezone}), cron {table.cron}",
        *(listed(moments) or ["  no time is to come"]),
    ]
    confirm(session, document, "\n".join(told))


@command(examples=["ratchet schedule pause nightly"], see=["schedule resume", "schedule remove"])
@click.argument("name", metavar="SCHEDULE", help="The name of a schedule.")
@click.pass_obj
def pause(session: Session, name: str) -> None:
    """Let a schedule rest.

    No jobs are made until `ratchet schedule resume`, and none are made up for then.
    """
    with _changing(session) as tx:
        set_schedule_paused(tx, name, True)
        schedule = get_schedule(tx, name)
    confirm(
        session,
        schedule_record(schedule),
        f"Schedule {name} rests; `ratchet schedule resume {name}` goes on.",
    )


@command(examples=["ratchet schedule resume nightly"])
@click.argument("name", metavar="SCHEDULE", help="The name of a schedule.")
@click.pass_obj
def resume(session: Session, name: str) -> None:
    """Let a paused schedule go on.

    What would have come while it rested is not made up for.
    """
    with _changing(session) as tx:
        set_schedule_paused(tx, name, False)
        schedule = get_schedule(tx, name)
    confirm(session, schedule_record(schedule), f"Schedule {name} goes on.")


@command(examples=["ratchet schedule remove nightly"], see=["schedule pause"])
@click.argument("name", metavar="SCHEDULE", help="The name of a schedule.")
@click.pass_obj
def remove(session: Session, name: str) -> None:
    """Remove a schedule.

    Jobs that it has made stay as they are.
    """
    with _changing(session) as tx:
        remove_schedule(tx, name)
    confirm(session, {"name": name, "removed": True}, f"Schedule {name} is removed.")


@contextlib.contextmanager
def _changing(session: Session) -> Iterator[Transaction]:
    with existing_ledger(session) as ledger, ledger.write(actor="cli") as tx:
        yield tx


def _known(session: Session, name: str) -> Schedule | None:
    """The schedule of that name, where there is a ledger at all."""
    if not has_ledger(session.load()):
        return None
    with contextlib.suppress(NotFound), existing_ledger(session) as ledger, ledger.read() as tx:
        return get_schedule(tx, name)
    return None


def _next(schedule: Schedule) -> int | None:
    upcoming = schedule.upcoming(time.time(), 1)
    return int(upcoming[0].timestamp() * 1000) if upcoming else None


def _priority(schedule: Schedule) -> str:
    return "background" if schedule.background else str(schedule.priority)


def _parsed(payload: str | None) -> Any:
    try:
        return None if payload is None else json.loads(payload)
    except ValueError as error:
        raise Misuse(f"--payload is not JSON: {error}", hint="such as --payload '{\"depth\": 3}'") from None
