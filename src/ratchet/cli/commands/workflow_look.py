"""`ratchet workflow validate`, `plan`, `show` and `list`"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import note, print_document, show_list, show_one
from ratchet.cli.params import COUNT, ID, source_argument
from ratchet.cli.words import age_of, compact, lines, one_line
from ratchet.kernel import Misuse
from ratchet.workflows import views

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Ledger


@command(
    examples=[
        "ratchet workflow validate report.yaml",
        "ratchet workflow validate report.yaml --json",
        "ratchet workflow validate --schema > workflow.schema.json",
    ],
    see=["workflow plan"],
)
@click.argument("file", metavar="[FILE]", required=False, help="A file of YAML or JSON.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of workflow files instead.")
@click.pass_obj
def validate(session: Session, file: str | None, schema: bool) -> int:
    """Check a workflow and tell everything that is wrong.

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
    from ratchet.cli.workflow_sources import existing_file, ledger_if_any
    from ratchet.workflows.saved import check_file

    path = existing_file(file)
    with ledger_if_any(session) as ledger:
        problems = check_file(path, ledger, session.load().settings)
    if session.json:
        print_document({"file": file, "valid": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            print(lines(problem))
        note(f"{file}: {len(problems)} {'problem' if len(problems) == 1 else 'problems'}")
    else:
        print("Valid")
    return 1 if problems else 0


@command(
    examples=["ratchet workflow plan report.yaml", "ratchet workflow plan report --json"],
    see=["workflow run", "workflow profile"],
)
@source_argument
@click.pass_obj
def plan(session: Session, source: str) -> None:
    """Show what a workflow would do, and what can run at once.

    Steps of one wave wait for nothing but earlier waves. A step does not wait for its whole wave, though: it starts as
    soon as what it needs is there. With --json only the waves are printed, as lists of step ids. Times are those of the
    last runs.
    """
    from ratchet.cli.workflow_sources import find_source, ledger_if_any

    spec, _ = find_source(session, source)
    with ledger_if_any(session) as ledger, contextlib.ExitStack() as stack:
        tx = None if ledger is None else stack.enter_context(ledger.read())
        found = views.plan_record(tx, spec)
    if session.json:
        print_document(found["waves"])
    else:
        print_plan(found)


@command(
    examples=[
        "ratchet workflow show report",
        "ratchet workflow show 12",
        "ratchet workflow show report --json | jq .spec",
    ],
    see=["workflow list", "workflow profile"],
)
@click.argument(
    "wanted", metavar="WORKFLOW|RUN", help="The name of a saved workflow, or the number of a run."
)
@click.pass_obj
def show(session: Session, wanted: str) -> None:
    """Show a saved workflow, or a run of one.

    A number is a run: its status, its outputs, and what became of each step.
    """
    with existing_ledger(session) as ledger:
        if wanted.isdecimal():
            _show_run(session, ledger, ID(wanted))
        else:
            _show_workflow(session, ledger, wanted)


@command(
    "list",
    examples=[
        "ratchet workflow list",
        "ratchet workflow list --limit 100 --json | jq -r '.workflows[].name'",
    ],
)
@click.option("--limit", "-n", type=COUNT, default=20, show_default=True, help="At most so many of each.")
@click.option("--before", type=ID, metavar="RUN", help="Only runs older than this one: the next page.")
@click.pass_obj
def list_(session: Session, limit: int, before: int | None) -> None:
    """List the saved workflows and the last runs."""
    with existing_ledger(session) as ledger, ledger.read() as tx:
        saved = views.workflows(tx, limit=limit)
        runs = views.workflow_runs(tx, before=before, limit=limit)
    if session.json:
        print_document({"workflows": saved, "runs": runs})
        return
    if not saved and not runs:
        note('No workflows yet. `ratchet workflow new "WHAT IT SHOULD DO"` plans one, `save FILE` keeps one.')
        return
    if saved:
        _print_saved(session, saved)
    if saved and runs:
        print()
    if runs:
        print_runs(session, runs)


def print_plan(found: dict[str, Any]) -> None:
    """The steps in their order, with what each calls, needs and took."""
    from ratchet.cli.tables import print_table

    print(one_line(f"{found['workflow']} {found['version']}: {found['description']}".rstrip(": ")))
    if found["inputs"]:
        print(f"takes {', '.join(_input(name, each) for name, each in found['inputs'].items())}")
    if found["outputs"]:
        print(f"gives {one_line(', '.join(found['outputs']))}")
    print()
    wave = {step: number for number, turn in enumerate(found["waves"], 1) for step in turn}
    print_table(
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
    if step["when"]:
        parts.append(f"if {step['when']}")
    return ", ".join(parts) or None


def _milliseconds(took: float | None) -> str | None:
    if took is None:
        return None
    return f"{took:.0f}ms" if took < 1000 else f"{took / 1000:.1f}s"


def _show_run(session: Session, ledger: Ledger, run_id: int) -> None:
    from ratchet.cli.workflow_outcome import tell_outcome

    with ledger.read() as tx:
        found = views.outcome(tx, ledger.artifacts, run_id)
    if session.json:
        print_document(found)
    else:
        tell_outcome(found)


def _show_workflow(session: Session, ledger: Ledger, name: str) -> None:
    with ledger.read() as tx:
        found = views.one_workflow(tx, name)
    show_one(
        session,
        found,
        {
            "workflow": found["name"],
            "version": found["version"],
            "description": found["description"] or None,
            "steps": " → ".join(", ".join(turn) for turn in found["waves"]),
            "from": found["origin"],
            "saved": age_of(found["created_at"]),
        },
    )
    if found["runs"] and not session.json:
        print()
        print_runs(session, found["runs"])


def _print_saved(session: Session, saved: list[dict[str, Any]]) -> None:
    show_list(
        session,
        saved,
        {
            "workflow": lambda each: each["name"],
            "version": lambda each: each["version"],
            "steps": lambda each: each["steps"],
            "saved": lambda each: age_of(each["created_at"]),
            "last": lambda each: each["last_run"] and each["last_run"]["status"],
            "description": lambda each: each["description"] or None,
        },
        record=lambda each: each,
        empty="",
    )


def print_runs(session: Session, runs: list[dict[str, Any]]) -> None:
    show_list(
        session,
        runs,
        {
            "run": lambda run: run["run_id"],
            "workflow": lambda run: run["workflow"],
            "status": lambda run: run["status"],
            "simulated": lambda run: run["simulated"] or None,
            "began": lambda run: age_of(run["created_at"]),
            "reason": lambda run: run["reason"],
        },
        record=lambda run: run,
        empty="",
    )
