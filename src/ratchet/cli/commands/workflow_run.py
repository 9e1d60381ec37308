"""`ratchet workflow run`"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED, Foreground, foreground
from ratchet.cli.inputs import input_options, workflow_inputs
from ratchet.cli.numbers import PRIORITY
from ratchet.cli.output import confirm, note
from ratchet.cli.records import print_document, print_line
from ratchet.cli.session import Session
from ratchet.cli.words import lines, one_line
from ratchet.cli.workflow_progress import progress
from ratchet.cli.workflow_sources import existing_file, source_argument
from ratchet.kernel import Missing, Misuse, RunStatus
from ratchet.workflows import views
from ratchet.workflows.running.preparing import prepare
from ratchet.workflows.running.starting import start_workflow
from ratchet.workflows.sources import load_workflow, names_file

simulated_option = click.option(
    "--simulated", is_flag=True, help="Allow recorded answers; the run is marked as a simulation."
)
detach_option = click.option(
    "--detach", is_flag=True, help="Leave the work to `ratchet worker` or `ratchet serve`."
)


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
        with here.ledger.write(actor="cli") as tx:
            run_id = start_workflow(tx, here.runtime, plan, **how)
        if detach:
            confirm(session, {"run_id": run_id}, f"Run {run_id} waits for a worker.")
            return None
        steps = len(plan.spec.steps)
        return _carry(session, here, run_id, spec.workflow_id, steps, following=following)


def _carry(session: Session, here: Foreground, run_id: int, name: str, steps: int, *, following: bool) -> int:
    with progress(name, steps, quiet=session.json, follow=following) as hear:
        ended = here.carry(run_id, hear, give_up=True)
    with here.ledger.read() as tx:
        found = views.outcome(tx, here.ledger.artifacts, run_id)
    if session.json:
        (print_line if following else print_document)(found)
    else:
        tell_outcome(found)
    if here.interrupted:
        return INTERRUPTED
    if ended.status is RunStatus.COMPLETED:
        return 0
    return Missing.exit_code if views.lacks_program(found) else 1


def tell_outcome(found: Mapping[str, Any]) -> None:
    """What a run has come to: its outputs to stdout, all else to stderr."""
    run_id, status = found["run_id"], found["status"]
    if "steps" not in found:
        note(f"Run {run_id} ({found['workflow']}) is {status}." + _because(found["reason"]))
        print_document(found["result"])
        return
    _print_outputs(found["outputs"], whole=status == "completed")
    for name, step in found["steps"].items():
        if step["error"]:
            note(
                f"{'error: ' if step['status'] == 'failed' else ''}step {one_line(name)}: {lines(step['error'])}"
            )
            if step["hint"]:
                note(f"hint: {lines(step['hint'])}")
    if found["error"] and not any(step["error"] for step in found["steps"].values()):
        note(f"error: {lines(found['error'])}")
    note(f"Run {run_id} of {one_line(found['workflow'])} is {status}: {_counted(found['steps'])}.")
    if found["simulated"]:
        note("This is a simulation: recorded answers are allowed in it.")
    _tell_next(found)


def _tell_next(found: Mapping[str, Any]) -> None:
    run_id = found["run_id"]
    match found["status"]:
        case "blocked":
            note("`ratchet approval list` shows what is asked; an answer lets it go on.")
        case "failed" | "cancelled":
            note("What was done is kept: run it again, and only the rest is done.")
            note(f"`ratchet workflow show {run_id} --json` has every step.")
        case "completed":
            pass
        case _:
            note(f"`ratchet events --run {run_id} --follow` tells what happens.")


def _because(reason: str | None) -> str:
    return f" {one_line(reason)}." if reason else ""


def _print_outputs(outputs: Mapping[str, Any], *, whole: bool) -> None:
    """The one text of a whole run is printed as it is; anything else as JSON."""
    values = list(outputs.values())
    if whole and len(values) == 1 and isinstance(values[0], str):
        # A terminal would obey what a step has written; a program that reads it wants it as it is.
        print(lines(values[0]) if sys.stdout.isatty() else values[0])
    elif outputs:
        print_document(outputs)


def _counted(steps: Mapping[str, Mapping[str, Any]]) -> str:
    counts = Counter(step["status"] for step in steps.values())
    cached = sum(bool(step["cached"]) for step in steps.values())
    told = [f"{number} {status}" for status, number in counts.items()]
    if cached:
        told.append(f"{cached} of them known from before")
    return f"{len(steps)} {'step' if len(steps) == 1 else 'steps'}" + (f", {', '.join(told)}" if told else "")
