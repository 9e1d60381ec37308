"""`ratchet workflow run`"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED, Foreground, foreground
from ratchet.cli.inputs import input_options, workflow_inputs
from ratchet.cli.output import confirm, print_document, print_line
from ratchet.cli.params import PRIORITY, detach_option, simulated_option, source_argument
from ratchet.cli.workflow_outcome import tell_outcome
from ratchet.cli.workflow_progress import progress
from ratchet.cli.workflow_sources import existing_file
from ratchet.engines.engine import Failure
from ratchet.kernel import Missing, Misuse, RunStatus
from ratchet.ledger.sessions import list_sessions
from ratchet.workflows import views
from ratchet.workflows.preflight import check_workflow
from ratchet.workflows.runs.plan import start_workflow
from ratchet.workflows.runs.preparation import prepare
from ratchet.workflows.saved import load_workflow, names_file

if TYPE_CHECKING:
    from ratchet.cli.session import Session


@command(
    examples=[
        "ratchet workflow run report.yaml --input topic=tides",
        "ratchet workflow run report --inputs given.json --json | jq .outputs",
        "ratchet workflow run report --input topic=tides --follow",
        "ratchet workflow run report --input topic=tides --background --detach",
    ],
    see=["workflow show", "workflow validate"],
)
@source_argument
@input_options
@click.option(
    "--follow", "-f", "following", is_flag=True, help="Tell everything that happens, as it happens."
)
@click.option("--no-cache", is_flag=True, help="Run every step anew, also one whose result is known.")
@click.option("--spread", is_flag=True, help="Offer steps that find no place here to other workers.")
@click.option("--background", is_flag=True, help="Give way to whatever else there is to do.")
@click.option("--priority", type=PRIORITY, help="0 is done first, 9 last; 5 if not given.")
@simulated_option
@detach_option
@click.pass_obj
def run(
    session: Session,
    /,
    source: str,
    pairs: tuple[str, ...],
    document: str | None,
    following: bool,
    no_cache: bool,
    spread: bool,
    detach: bool,
    **how: Any,
) -> int | None:
    """Run a workflow and print its outputs.

    A step starts as soon as what it needs is there, in a process of its own. When a step fails, those that need it are
    left out, and everything else is done. Steps whose code and inputs have not changed since an earlier run are not run
    again. Ctrl-C cancels the run; the results of steps that were done are kept for the next one.

    With --json it ends with one object: status, outputs and steps, each with its status, metrics and error; with
    --follow there is a line for each event before. Exits with 0 when the run is completed, 1 when a step failed or it
    waits for a person, 2 for misuse (also missing inputs), 3 when a program or an engine is missing.
    """
    if detach and following:
        raise Misuse(
            "--detach and --follow exclude each other",
            hint="`ratchet events --run RUN --follow` follows any run",
        )
    if names_file(source):
        existing_file(source)
    with foreground(session.load()) as here:
        spec, folder = load_workflow(here.runtime, source)
        inputs = workflow_inputs(spec, pairs, document)
        plan = prepare(
            here.runtime, spec, inputs, folder=folder, cached=not no_cache, spread=True if spread else None
        )
        here.check(partial(check_workflow, here.runtime, plan), detach=detach)
        with here.ledger.write(actor="cli") as tx:
            run_id = start_workflow(tx, here.runtime, plan, **how)
        if detach:
            confirm(session, {"run_id": run_id}, f"Run {run_id} waits for a worker.")
            return None
        steps = len(plan.spec.steps)
        return _carry(session, here, run_id, spec.workflow_id, steps, following=following)


def _carry(session: Session, here: Foreground, run_id: int, name: str, steps: int, *, following: bool) -> int:
    with progress(name, steps, quiet=session.json, follow=following) as hear:
        ended = here.carry(run_id, hear, quiet=session.json, give_up=True)
    with here.ledger.read() as tx:
        found = views.outcome(tx, here.ledger.artifacts, run_id)
        last = list_sessions(tx, run_id=run_id, limit=1) if ended.status is RunStatus.BLOCKED else ()
    if session.json:
        (print_line if following else print_document)(found)
    else:
        tell_outcome(found)
    if here.interrupted:
        return INTERRUPTED
    if ended.status is RunStatus.COMPLETED:
        return 0
    lacks_engine = any(each.failure == Failure.MISSING for each in last)
    return Missing.exit_code if lacks_engine or views.lacks_program(found) else 1
