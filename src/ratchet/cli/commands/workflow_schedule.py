"""`ratchet workflow schedule`"""

from __future__ import annotations

import re
from typing import Any

import click

from ratchet.cli.command import command
from ratchet.cli.commands.schedule import confirm_set, timing_options
from ratchet.cli.commands.workflow import existing_file
from ratchet.cli.inputs import input_options, workflow_inputs
from ratchet.cli.opening import existing_runtime
from ratchet.cli.params import COUNT, Amount
from ratchet.cli.session import CliSession
from ratchet.kernel import Misuse
from ratchet.runtime import Runtime, get_schedule
from ratchet.runtime.schedules import chosen_priority
from ratchet.workflows.saved import load_workflow, names_file
from ratchet.workflows.schedules import Overlap, schedule_optimisation, schedule_workflow

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
    """Run a workflow again by the clock.

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
