"""`ratchet schedule add` and `next`"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger, existing_runtime, has_ledger
from ratchet.cli.output import confirm
from ratchet.cli.params import COUNT, PRIORITY
from ratchet.cli.session import CliSession
from ratchet.kernel import Misuse, NotFound
from ratchet.operations import record
from ratchet.runtime import Missed, Schedule, get_schedule
from ratchet.runtime.operations.schedules import ScheduleAnswer, Times, local, times_of
from ratchet.runtime.schedules import chosen_priority

F = TypeVar("F", bound=Callable[..., Any])


def timing_options(function: F) -> F:
    """`--timezone`, `--missed`, `--priority` and `--background`."""
    for option in (
        click.option("--background", is_flag=True, help="Give way to whatever else there is to do."),
        click.option("--priority", type=PRIORITY, help="0 is done first, 9 last; 5 if not given."),
        click.option(
            "--missed",
            type=click.Choice([str(policy) for policy in Missed]),
            default=str(Missed.ONCE),
            show_default=True,
            help="What happens to times that passed while no worker was there: one job for all, none, or one for "
            "each of the last 24.",
        ),
        click.option(
            "--timezone", default="UTC", show_default=True, metavar="ZONE", help="Such as Europe/Berlin."
        ),
    ):
        function = option(function)
    return function


def confirm_set(session: CliSession, schedule: Schedule) -> None:
    """Say what was understood, and when it comes."""
    answer = ScheduleAnswer.of(schedule)
    lines = [
        f"Schedule {schedule.name} is set: {schedule.meaning} ({schedule.timezone}), cron {schedule.cron}.",
        *listed(answer.next),
    ]
    confirm(session, record(answer), "\n".join(lines))


def listed(moments: list[datetime]) -> list[str]:
    """Times on a line each, as the clocks of their zone show them."""
    return [f"  {'next' if not number else 'then'} {local(each)}" for number, each in enumerate(moments)]


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
def add(
    session: CliSession,
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
def next_(session: CliSession, what: str, count: int, timezone: str | None) -> None:
    """Show the next times of a schedule, or of a time as it is said.

    A good way to try how a WHEN is understood before it is used. It needs no ledger.
    """
    schedule = _known(session, what)
    if schedule is not None and timezone is not None:
        raise Misuse(
            f"schedule {what} has its own time zone, {schedule.timezone}", hint="leave --timezone out"
        )
    if schedule is None:
        found = times_of(what, timezone or "UTC", count)
    else:
        moments = schedule.upcoming(time.time(), count)
        found = Times(schedule.cron, schedule.meaning, schedule.timezone, moments)
    told = [
        f"{found.meaning} ({found.timezone}), cron {found.cron}",
        *(listed(found.next) or ["  no time is to come"]),
    ]
    confirm(session, record(found), "\n".join(told))


def _known(session: CliSession, name: str) -> Schedule | None:
    """The schedule of that name, where there is a ledger at all."""
    if not has_ledger(session.load()):
        return None
    with contextlib.suppress(NotFound), existing_ledger(session) as ledger, ledger.read() as tx:
        return get_schedule(tx, name)
    return None


def _parsed(payload: str | None) -> Any:
    try:
        return None if payload is None else json.loads(payload)
    except ValueError as error:
        raise Misuse(f"--payload is not JSON: {error}", hint="such as --payload '{\"depth\": 3}'") from None
