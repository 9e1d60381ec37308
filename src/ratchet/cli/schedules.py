"""How commands take schedules, and how they show them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ratchet.cli.output import confirm
from ratchet.cli.params import PRIORITY
from ratchet.operations import record
from ratchet.runtime import Missed, Schedule
from ratchet.runtime.operations.schedules import ScheduleAnswer, local

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession

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
