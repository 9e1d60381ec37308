"""`ratchet workflow schedule`"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from ratchet.cli.command import command
from ratchet.cli.commands.workflow import existing_file
from ratchet.cli.inputs import input_options, workflow_inputs
from ratchet.cli.opening import existing_ledger, existing_runtime, has_ledger
from ratchet.cli.output import confirm
from ratchet.cli.params import COUNT, PRIORITY, Amount
from ratchet.cli.session import CliSession
from ratchet.kernel import Misuse, NotFound
from ratchet.operations import record
from ratchet.runtime import Missed, Runtime, Schedule, get_schedule
from ratchet.runtime.operations.schedules import ScheduleAnswer, Times, local, times_of
from ratchet.runtime.schedules import chosen_priority
from ratchet.workflows.saved import load_workflow, names_file
from ratchet.workflows.schedules import Overlap, schedule_optimisation, schedule_workflow

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


_FOR_WORKFLOWS = ("pairs", "document", "overlap", "no_cache", "priority")
_FOR_BATCHES = ("budget", "most", "engine")


@command(
    examples=[
        'ratchet workflow schedule report.yaml "every weekday at 9am" --input topic=tides --timezone Europe/Berlin',
        'ratchet workflow schedule report "every 2 hours" --input topic=tides --missed skip --overlap queue',
        'ratchet workflow schedule --optimise --budget 5 "every night at 2"',
    ],
    see=["schedule list", "schedule next"],
)
@click.argument(
    "what",
    metavar="[FILE|WORKFLOW] WHEN",
    nargs=-1,
    required=True,
    help="A file or a saved workflow (none with --optimise), then the times.",
)
@input_options
@click.option("--name", metavar="NAME", help="The schedule's name; that of the workflow if not given.")
@timing_options
@click.option(
    "--overlap",
    type=click.Choice([str(each) for each in Overlap]),
    help="What happens to a time while the run before is unfinished: no run, or one that waits; skip if not given.",
)
@click.option(
    "--no-cache", is_flag=True, help="Run every step again each time, also one whose result is known."
)
@click.option(
    "--optimise", is_flag=True, help="Instead of a workflow: make the tools better that are worth it most."
)
@click.option("--budget", type=Amount(), metavar="USD", help="What --optimise may cost.")
@click.option("--most", type=COUNT, help="How many tools --optimise takes on.")
@click.option("--engine", metavar="ENGINE", help="Who rewrites the tools with --optimise.")
def schedule(
    session: CliSession, /, what: tuple[str, ...], name: str | None, optimise: bool, **options: Any
) -> None:
    """Run a workflow on a schedule.

    WHEN is plain English or a cron expression; quote it. A saved workflow is run as it is saved at each time; that of a
    file is kept as it is now. A worker (`ratchet worker` or `ratchet serve`) does it when the time comes.
    """
    if len(what) != (1 if optimise else 2):
        raise Misuse(
            f"{len(what)} arguments are {'too many' if len(what) > 1 + (not optimise) else 'too few'}",
            hint="give WHEN with --optimise, otherwise FILE|WORKFLOW and WHEN; quote WHEN",
        )
    _refuse(options, _FOR_WORKFLOWS if optimise else _FOR_BATCHES, optimise=optimise)
    with existing_runtime(session) as runtime:
        act = _schedule_batch if optimise else _schedule_workflow
        set_name = act(runtime, name, *what, **options)
        with runtime.ledger.read() as tx:
            found = get_schedule(tx, set_name)
    confirm_set(session, found)


def _schedule_workflow(
    runtime: Runtime,
    name: str | None,
    source: str,
    when: str,
    *,
    pairs: tuple[str, ...],
    document: str | None,
    timezone: str,
    missed: str,
    priority: int | None,
    background: bool,
    overlap: str | None,
    no_cache: bool,
    **_: Any,
) -> str:
    if names_file(source):
        existing_file(source)
    spec, folder = load_workflow(runtime, source)
    named = name or _slug(spec.workflow_id)
    schedule_workflow(
        runtime,
        named,
        when,
        spec if names_file(source) else source,
        workflow_inputs(spec, pairs, document),
        folder=folder,
        timezone=timezone,
        missed=missed,
        priority=chosen_priority(priority, background),
        overlap=overlap or Overlap.SKIP,
        cached=not no_cache,
        actor="cli",
    )
    return named


def _schedule_batch(
    runtime: Runtime,
    name: str | None,
    when: str,
    *,
    timezone: str,
    missed: str,
    budget: float | None,
    most: int | None,
    engine: str | None,
    **_: Any,
) -> str:
    named = name or "optimise"
    schedule_optimisation(
        runtime,
        named,
        when,
        budget_usd=budget,
        most=most,
        engine=engine,
        timezone=timezone,
        missed=missed,
        actor="cli",
    )
    return named


def _refuse(options: dict[str, Any], foreign: tuple[str, ...], *, optimise: bool) -> None:
    """Options that would be without effect are misuse."""
    flags = {"pairs": "--input", "document": "--inputs", "no_cache": "--no-cache"}
    for each in foreign:
        if options[each] not in (None, (), False):
            how = "with --optimise" if optimise else "without --optimise"
            raise Misuse(f"{flags.get(each, f'--{each}')} has no meaning {how}", hint="leave it out")


def _slug(workflow_id: str) -> str:
    """A name for the schedule of a workflow, whose own name may be any text."""
    return re.sub(r"[^a-z0-9._-]+", "-", workflow_id.lower()).strip("-._")[:64].strip("-._")
