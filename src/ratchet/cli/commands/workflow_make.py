"""`ratchet workflow new`, `save` and `delete`"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.commands.workflow_look import print_plan
from ratchet.cli.foreground import INTERRUPTED, Foreground, foreground
from ratchet.cli.opening import existing_runtime
from ratchet.cli.output import confirm, note, print_document
from ratchet.cli.params import detach_option, from_file_option, given_text, simulated_option
from ratchet.cli.progress import progress
from ratchet.cli.words import one_line
from ratchet.cli.workflow_sources import existing_file
from ratchet.engines.engine import Failure
from ratchet.flowkit.reader import read_spec
from ratchet.kernel import Conflict, Missing, Misuse, RunStatus
from ratchet.ledger.sessions import list_sessions
from ratchet.runtime import Kinds
from ratchet.workflows import views
from ratchet.workflows.files import read_file
from ratchet.workflows.memory import delete_workflow
from ratchet.workflows.overseer import LONGEST_SENTENCE, Planned, planned_of, start_plan
from ratchet.workflows.preflight import check_overseer
from ratchet.workflows.saved import keep_workflow

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Run

_TOLD = ("workflow.", "attempt.failed", "attempt.error")


@command(
    examples=[
        'ratchet workflow new "Summarise a text and translate the summary into German."',
        'ratchet workflow new "Count the words of a text." --save word_count --out word_count.json',
        "ratchet workflow new --from-file wish.txt --engine llm:deep --no-reuse",
    ],
    see=["workflow run", "workflow plan"],
)
@click.argument("what", metavar="[WHAT]", required=False, help="What the workflow should do, in words.")
@from_file_option
@click.option("--save", "name", metavar="NAME", help="Save it under this name; else it gets one of its own.")
@click.option("--out", metavar="FILE", help="Also write it to a file, as JSON.")
@click.option("--engine", metavar="ENGINE", help="Who plans; see `ratchet engine list`.")
@click.option("--model", metavar="MODEL", help="The model that the engine uses.")
@click.option("--no-reuse", is_flag=True, help="Plan anew, also if a plan for this is remembered.")
@click.option("--keep-tools", is_flag=True, help="Put tools that are written for it among all others.")
@simulated_option
@detach_option
@click.pass_obj
def new(
    session: Session,
    /,
    what: str | None,
    file: str | None,
    out: str | None,
    no_reuse: bool,
    detach: bool,
    **options: Any,
) -> int | None:
    """Have an overseer plan a workflow from a sentence.

    A model answers with steps, inputs and outputs. The plan is checked, and sent back with what is wrong a few times;
    tools that are missing are written and tried. What is good is saved and remembered: the same wish later costs no
    model call. Nothing of it is run yet.

    Ctrl-C pauses the planning; `ratchet runs resume RUN` hands it to a worker. Exits with 0 when there is a plan, 1
    when it came to nothing, 3 when the engine is missing.
    """
    sentence = given_text(what, file, most_bytes=4 * LONGEST_SENTENCE)
    target = None if out is None else _free_file(out)
    if detach and target is not None:
        raise Misuse(
            "--detach and --out exclude each other", hint="`ratchet workflow show NAME --json` has it later"
        )
    with foreground(session.load()) as here:
        asked = {"reuse": not no_reuse, "engine": options["engine"], "model": options["model"]}
        here.check(partial(check_overseer, here.runtime, sentence, **asked), detach=detach)
        run_id = start_plan(here.runtime, sentence, reuse=not no_reuse, actor="cli", **options)
        if detach:
            confirm(session, {"run_id": run_id}, f"Run {run_id} waits for a worker.")
            return None
        with progress("planning", quiet=session.json, told=_TOLD) as hear:
            ended = here.carry(run_id, hear, quiet=session.json)
        return _tell_plan(session, here, ended, target)


@command(
    examples=["ratchet workflow save report.yaml", "ratchet workflow save report.yaml --name weekly_report"],
    see=["workflow run", "workflow schedule"],
)
@click.argument("file", metavar="FILE", help="A file of YAML or JSON.")
@click.option("--name", metavar="NAME", help="Under this name; under its workflow_id if not given.")
@click.pass_obj
def save(session: Session, file: str, name: str | None) -> None:
    """Keep a workflow under its name, to be run by it.

    Saving again replaces what is run from now on. A saved workflow may name tools and other saved workflows, and carry
    tools with it, but cannot lead to files.
    """
    spec = read_file(existing_file(file))
    with existing_runtime(session, Kinds()) as runtime, runtime.ledger.write(actor="cli") as tx:
        saved = keep_workflow(tx, spec, origin="file", name=name)
    confirm(
        session,
        views.workflow_record(saved),
        f"{saved.name} {saved.version} is saved; `ratchet workflow run {saved.name}` runs it.",
    )


@command(examples=["ratchet workflow delete report", "ratchet workflow delete report --yes"])
@click.argument("name", metavar="WORKFLOW", help="The name of a saved workflow.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, name: str, yes: bool) -> int:
    """Delete a saved workflow; what it has run stays.

    What is remembered of it goes with it, so that no later wish leads to it.
    """
    with existing_runtime(session, Kinds()) as runtime:
        if not yes and not _agreed(name):
            note(f"{name} stays.")
            return 1
        forgotten = delete_workflow(runtime, name, actor="cli")
    confirm(session, {"workflow": name, "deleted": True, "forgotten": forgotten}, f"{name} is deleted.")
    return 0


def _agreed(name: str) -> bool:
    if not sys.stdin.isatty():
        raise Misuse(f"deleting {name} needs a yes, and nobody can be asked", hint="add --yes")
    return click.confirm(f"Delete {name}?", err=True)


def _free_file(out: str) -> Path:
    path = Path(out)
    if path.exists():
        raise Conflict(f"{out} exists already", hint="name another file, or remove it")
    return path


def _tell_plan(session: Session, here: Foreground, ended: Run, target: Path | None) -> int:
    if ended.status is not RunStatus.COMPLETED:
        return _tell_why_not(session, here, ended)
    planned = planned_of(ended)
    if target is not None:
        target.write_text(json.dumps(planned.spec, indent=2, ensure_ascii=False) + "\n")
    if session.json:
        print_document({"run_id": ended.id, **planned.data})
        return 0
    with here.ledger.read() as tx:
        print_plan(views.plan_record(tx, read_spec(planned.spec)))
    _tell_how(planned)
    if target is not None:
        note(f"It is in {target}, too.")
    return 0


def _tell_how(planned: Planned) -> None:
    if planned.reused is not None:
        note(f"No model was asked: {one_line(planned.reused.reason)}: {one_line(planned.reused.sentence)!r}.")
        note("--no-reuse plans it anew.")
    elif planned.template is not None:
        note(f"The overseer was shown {planned.template} as an example.")
    for problem in planned.repaired:
        note(f"mended: {one_line(problem)}")
    for remark in planned.notes:
        note(one_line(remark))
    if planned.tools_generated:
        note(f"written for it: {', '.join(planned.tools_generated)}")
    if planned.simulated:
        note("This is a simulation: a recorded session was used.")
    note(f"Saved as {planned.workflow}: `ratchet workflow run {planned.workflow} --input KEY=VALUE` runs it.")


def _tell_why_not(session: Session, here: Foreground, ended: Run) -> int:
    result = ended.result if isinstance(ended.result, dict) else {}
    if session.json:
        print_document({**views.run_record(ended), "result": ended.result})
    else:
        note(
            f"error: the plan of run {ended.id} is {ended.status}: {one_line(ended.reason or 'no reason is known')}"
        )
        for problem in result.get("problems", ()):
            note(f"  {one_line(problem)}")
        if ended.status in (RunStatus.PAUSED, RunStatus.BLOCKED):
            note(
                f"`ratchet runs resume {ended.id}` hands it to a worker, `ratchet runs cancel {ended.id}` ends it."
            )
        else:
            note(f"hint: {_way_on(here, ended)}")
    if here.interrupted:
        return INTERRUPTED
    return Missing.exit_code if _last_failure(here, ended) == Failure.MISSING else 1


def _way_on(here: Foreground, ended: Run) -> str:
    """What to do about a plan that failed: other words help only where the answer was bad."""
    failure = _last_failure(here, ended)
    if failure in (None, Failure.BAD_OUTPUT):
        return "say it in other words, name the tools to use, or use a stronger model"
    return f"fix that and ask again; `ratchet runs show {ended.id}` has the rest"


def _last_failure(here: Foreground, ended: Run) -> str | None:
    with here.ledger.read() as tx:
        last = list_sessions(tx, run_id=ended.id, limit=1)
    return last[0].failure if last else None
