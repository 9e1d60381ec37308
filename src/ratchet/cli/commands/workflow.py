"""`ratchet workflow validate`, `plan`, `show`, `list`, `save` and `profile`: what needs no worker"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger, has_ledger
from ratchet.cli.operation import calling, show_answer
from ratchet.cli.output import confirm, note, print_document, print_foreign, show_page, show_problems
from ratchet.cli.params import COUNT, ID, source_argument
from ratchet.cli.words import age, compact, cost_words, lines, one_line
from ratchet.kernel import Misuse
from ratchet.operations import Window, record
from ratchet.workflows import operations as of_workflows

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.flowkit.spec import WorkflowSpec
    from ratchet.ledger import Ledger
    from ratchet.workflows.operations import (
        ListedWorkflowAnswer,
        OutcomeAnswer,
        WorkflowProfile,
        WorkflowRunAnswer,
        WorkflowStepAnswer,
    )

_MIB = 1024 * 1024
_wanted_argument = click.argument(
    "wanted", metavar="WORKFLOW|RUN", help="The name of a saved workflow, or the number of a run."
)


@command(
    examples=[
        "ratchet workflow validate report.yaml",
        "ratchet workflow validate report.yaml --json",
        "ratchet workflow validate --schema > workflow.schema.json",
    ],
    see=["workflow plan"],
)
@click.argument("file", metavar="[FILE]", required=False, help="A file of YAML or JSON, or module:name.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of workflow files instead.")
def validate(session: CliSession, file: str | None, schema: bool) -> int:
    """Check a workflow and report everything that is wrong.

    Nothing is run, and no model is asked. Where there is a ledger, the tools that the steps name must exist, too.

    Exits with 0 when the workflow could run, 1 when something is wrong with it, 2 when there is no such file.
    """
    if schema:
        from ratchet.flowkit.schema import workflow_schema

        print_document(workflow_schema())
        return 0
    if file is None:
        raise Misuse("the file is missing", hint="name a workflow file, or use --schema")
    # Loaded here: it knows what every kind of tool is called with.
    from ratchet.workflows.saved import check_file, check_python, names_python

    with _ledger_if_any(session) as ledger:
        settings = session.load().settings
        if names_python(file):
            problems = check_python(file, ledger, settings)
        else:
            problems = check_file(existing_file(file), ledger, settings)
    return show_problems(session, "file", file, problems)


@command(
    examples=["ratchet workflow plan report.yaml", "ratchet workflow plan report --json"],
    see=["workflow run", "workflow profile"],
)
@source_argument
def plan(session: CliSession, source: str) -> None:
    """Show what a workflow would do, and what can run at once.

    Steps of one wave wait for nothing but earlier waves. A step does not wait for its whole wave, though: it starts as
    soon as what it needs is there. With --json only the waves are printed, as lists of step ids. Times are those of the
    last runs.
    """
    from ratchet.workflows.views import plan_record

    spec = _source(session, source)
    with _ledger_if_any(session) as ledger, contextlib.ExitStack() as stack:
        tx = None if ledger is None else stack.enter_context(ledger.read())
        found = plan_record(tx, spec)
    show_page(session, found["waves"], print_plan, found)


@command(
    examples=[
        "ratchet workflow show report",
        "ratchet workflow show 12",
        "ratchet workflow show report --json | jq .spec",
    ],
    see=["workflow list", "workflow profile"],
)
@_wanted_argument
def show(session: CliSession, wanted: str) -> None:
    """Show a saved workflow, or a run of one.

    A number is a run: its status, its outputs, and what became of each step.
    """
    with calling(session) as call:
        if wanted.isdecimal():
            outcome = of_workflows.outcome(call, ID(wanted))
            if outcome.steps and not session.json:
                _print_steps(outcome.steps)
            print_outcome(outcome, as_json=session.json)
            return
        found = of_workflows.show(call, wanted)
    show_answer(session, of_workflows.show, found)
    if found.runs and not session.json:
        print()
        _print_runs(found.runs)


@command(
    "list",
    examples=[
        "ratchet workflow list",
        "ratchet workflow list --limit 100 --json | jq -r '.workflows[].name'",
    ],
)
@click.option("--limit", "-n", type=COUNT, default=20, show_default=True, help="At most so many of each.")
@click.option("--before", type=ID, metavar="RUN", help="Only runs older than this one: the next page.")
def list_(session: CliSession, limit: int, before: int | None) -> None:
    """List the saved workflows and the last runs."""
    with calling(session) as call:
        saved = of_workflows.saved(call, Window(limit=limit)).items
        runs = of_workflows.all_runs(call, Window(before, limit)).items
    if session.json:
        print_document({"workflows": list(map(record, saved)), "runs": list(map(record, runs))})
        return
    if not saved and not runs:
        note('No workflows yet. `ratchet workflow new "WHAT IT SHOULD DO"` plans one, `save FILE` keeps one.')
    if saved:
        _print_saved(saved)
    if saved and runs:
        print()
    if runs:
        _print_runs(runs)


@command(
    examples=["ratchet workflow save report.yaml", "ratchet workflow save report.yaml --name weekly_report"],
    see=["workflow run", "workflow schedule"],
)
@click.argument("file", metavar="FILE", help="A file of YAML or JSON, or module:name.")
@click.option("--name", metavar="NAME", help="Under this name; under its workflow_id if not given.")
def save(session: CliSession, file: str, name: str | None) -> None:
    """Keep a workflow under its name, to be run by it.

    Saving again replaces what is run from now on. A saved workflow may name tools and other saved workflows, and carry
    tools with it, but cannot lead to files.
    """
    from ratchet.workflows.files import read_file
    from ratchet.workflows.saved import names_python, python_workflow

    spec = python_workflow(file) if names_python(file) else read_file(existing_file(file))
    with calling(session) as call:
        saved = of_workflows.keep(call, spec, origin="file", name=name)
    done = f"{saved.name} {saved.version} is saved; `ratchet workflow run {saved.name}` runs it."
    confirm(session, record(saved), done)


@command(
    examples=["ratchet workflow profile report", "ratchet workflow profile 12 --json | jq .critical_path"],
    see=["workflow evolve"],
)
@_wanted_argument
@click.option("--last", type=COUNT, default=20, show_default=True, help="Look at so many of its last runs.")
def profile(session: CliSession, wanted: str, last: int) -> None:
    """Show where the time of a workflow goes, and what to improve first.

    A number is a run; a name means the last runs of that workflow. Steps with a * are on the critical path: only
    shortening one of them makes the workflow faster.
    """
    from ratchet.workflows.profile import profile_run

    with calling(session) as call:
        if wanted.isdecimal():
            with call.read() as tx:
                found = profile_run(tx, ID(wanted))
        else:
            found = of_workflows.profile(call, wanted, last)
    show_page(session, record(found), _print_profile, found)


def existing_file(source: str) -> Path:
    """Raises `Misuse` where there is no such file: that is no fault of a workflow."""
    path = Path(source)
    if not path.is_file():
        raise Misuse(f"there is no file {source}", hint="name a JSON or YAML file with a workflow in it")
    return path


def _source(session: CliSession, source: str) -> WorkflowSpec:
    """The workflow in a file, which needs no ledger, or the one that is saved under a name."""
    from ratchet.flowkit.reader import read_spec
    from ratchet.ledger.workflows import get_workflow
    from ratchet.workflows.files import read_file
    from ratchet.workflows.saved import names_file, names_python, python_workflow

    if names_python(source):
        return python_workflow(source)
    if names_file(source):
        return read_file(existing_file(source))
    with existing_ledger(session) as ledger, ledger.read() as tx:
        return read_spec(get_workflow(tx, source).spec)


@contextlib.contextmanager
def _ledger_if_any(session: CliSession) -> Iterator[Ledger | None]:
    """The ledger where there is one. Looking at a file must not make it."""
    if not has_ledger(session.load()):
        yield None
        return
    with existing_ledger(session) as ledger:
        yield ledger


def _print_table(rows: Sequence[Any], columns: Mapping[str, Callable[[Any], object]]) -> None:
    from ratchet.cli.tables import print_table

    print_table(rows, columns)


def print_plan(found: dict[str, Any]) -> None:
    """The steps in their order, with what each calls, needs and took."""
    print(one_line(f"{found['workflow']} {found['version']}: {found['description']}".rstrip(": ")))
    if found["inputs"]:
        print(f"takes {', '.join(_input(name, each) for name, each in found['inputs'].items())}")
    if found["outputs"]:
        print(f"gives {one_line(', '.join(found['outputs']))}")
    print()
    wave = {step: number for number, turn in enumerate(found["waves"], 1) for step in turn}
    _print_table(
        sorted(found["steps"], key=lambda step: wave[step["step"]]),
        {
            "wave": lambda step: wave[step["step"]],
            "step": lambda step: step["step"],
            "calls": lambda step: step["tool"] or step["type"],
            "took": lambda step: _milliseconds(step["estimated_ms"]),
            "after": lambda step: ", ".join(step["needs"]) or None,
            "only": _only,
        },
    )
    if found["estimated_ms"] is not None:
        print(f"\nabout {_milliseconds(found['estimated_ms'])}, as it went before")


def _input(name: str, declared: dict[str, Any]) -> str:
    needed = declared["required"] and declared["default"] is None
    default = "" if needed else f" = {compact(declared['default']) or 'nothing'}"
    return one_line(f"{name}: {declared['type']}{default}")


def _only(step: dict[str, Any]) -> str | None:
    parts = []
    if step["for_each"] is not None:
        each = step["for_each"] if isinstance(step["for_each"], str) else compact(step["for_each"])
        parts.append(f"for each of {each}")
    if step["repeat"]:
        parts.append(f"until {step['repeat']['until']}, at most {step['repeat']['limit']} rounds")
    if step["when"]:
        parts.append(f"if {step['when']}")
    return ", ".join(parts) or None


def _milliseconds(took: float | None) -> str | None:
    if took is None:
        return None
    return f"{took:.0f}ms" if took < 1000 else f"{took / 1000:.1f}s"


def _print_saved(saved: Sequence[ListedWorkflowAnswer]) -> None:
    _print_table(
        saved,
        {
            "workflow": lambda each: each.name,
            "version": lambda each: each.version,
            "steps": lambda each: each.steps,
            "saved": lambda each: age(each.created_at),
            "last": lambda each: each.last_run and each.last_run.status,
            "description": lambda each: each.description or None,
        },
    )


def _print_runs(runs: Sequence[WorkflowRunAnswer]) -> None:
    _print_table(
        runs,
        {
            "run": lambda run: run.run_id,
            "workflow": lambda run: run.workflow,
            "status": lambda run: run.status,
            "simulated": lambda run: run.simulated or None,
            "began": lambda run: age(run.created_at),
            "reason": lambda run: run.reason,
        },
    )


def print_outcome(found: OutcomeAnswer, *, as_json: bool) -> None:
    """What a run has come to: its outputs to stdout, all else to stderr."""
    if as_json:
        print_document(record(found))
        return
    if found.action != "run":
        because = f" {one_line(found.reason)}." if found.reason else ""
        note(f"Run {found.run_id} ({found.workflow}) is {found.status}.{because}")
        print_document(found.result)
        return
    _print_outputs(found.outputs, whole=found.status == "completed")
    for name, step in found.steps.items():
        if step.error:
            note(f"{'error: ' if step.status == 'failed' else ''}step {one_line(name)}: {lines(step.error)}")
            if step.hint:
                note(f"hint: {lines(step.hint)}")
    if found.error and not any(step.error for step in found.steps.values()):
        note(f"error: {lines(found.error)}")
    note(
        f"Run {found.run_id} of {one_line(found.workflow)} is {found.status}: {_counted(found.steps.values())}."
    )
    if found.simulated:
        note("This is a simulation: recorded answers are allowed in it.")
    _print_next(found)


def _print_steps(steps: Mapping[str, WorkflowStepAnswer]) -> None:
    _print_table(
        list(steps.items()),
        {
            "step": lambda each: each[0],
            "status": lambda each: each[1].status,
            "took": lambda each: _milliseconds((each[1].metrics or {}).get("wall_ms")),
            "cached": lambda each: each[1].cached or None,
            "tries": lambda each: each[1].tries if (each[1].tries or 1) > 1 else None,
            "reason": lambda each: each[1].error or each[1].reason,
        },
    )
    print()


def _print_next(found: OutcomeAnswer) -> None:
    run_id = found.run_id
    match found.status:
        case "blocked" if not (found.reason or "").startswith("waits for"):
            note(
                f"Fix that; then `ratchet runs resume {run_id}` hands it to a worker, and "
                f"`ratchet runs cancel {run_id}` ends it."
            )
        case "blocked":
            note("`ratchet approval list` shows what is asked; an answer resumes it.")
        case "failed" | "cancelled":
            note("What was done is kept: run it again, and only the rest is done.")
            note(f"`ratchet workflow show {run_id} --json` has every step.")
        case "completed":
            pass
        case _:
            note(f"`ratchet events --run {run_id} --follow` shows what happens.")


def _print_outputs(outputs: Mapping[str, Any], *, whole: bool) -> None:
    """The one text of a whole run is printed as it is; anything else as JSON."""
    values = list(outputs.values())
    if whole and len(values) == 1 and isinstance(values[0], str):
        print_foreign(values[0])
    elif outputs:
        print_document(outputs)


def _counted(steps: Iterable[WorkflowStepAnswer]) -> str:
    all_steps = list(steps)
    counts = Counter(step.status for step in all_steps)
    cached = sum(step.cached for step in all_steps)
    parts = [f"{number} {status}" for status, number in counts.items()]
    if cached:
        parts.append(f"{cached} of them known from before")
    return f"{len(all_steps)} {'step' if len(all_steps) == 1 else 'steps'}" + "".join(
        f", {part}" for part in parts
    )


def _print_profile(found: WorkflowProfile) -> None:
    runs = f"run {found.runs[0]}" if len(found.runs) == 1 else f"{len(found.runs)} runs"
    print(f"{one_line(found.workflow)}: {found.wall_ms:.0f} ms on average in {runs}")
    print()
    _print_table(
        found.steps,
        {
            "": lambda step: "*" if step.step in found.critical_path else " ",
            "step": lambda step: step.step,
            "tool": lambda step: step.tool,
            "calls": lambda step: step.calls,
            "ms": lambda step: f"{step.wall_ms:.1f}",
            "time": lambda step: f"{step.time_share:.0%}",
            "cpu ms": lambda step: None if step.cpu_ms is None else f"{step.cpu_ms:.1f}",
            "MiB": lambda step: None if step.peak_bytes is None else f"{step.peak_bytes / _MIB:.0f}",
            "cost": lambda step: cost_words(record(step)) if step.tokens else None,
            "cached": lambda step: f"{step.cached:.0%}" if step.cached else None,
            "failed": lambda step: f"{step.failed:.0%}" if step.failed else None,
        },
    )
    print(f"\ncritical path: {' → '.join(found.critical_path)}, {found.path_ms:.1f} ms")
    if found.truncated:
        note("Some runs have more steps than were looked at.")
    following = found.evolve_next
    if following is not None:
        place = f"{found.workflow}/{following.tool}" if following.folder else following.tool
        print(f"make better first: {following.tool}: {one_line(following.why)}")
        note(f"`ratchet workflow evolve {place}` has it rewritten.")
