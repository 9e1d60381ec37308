"""`ratchet workflow profile` and `evolve`"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED, Foreground, foreground
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import confirm, note, print_document
from ratchet.cli.params import COUNT, ID, detach_option, simulated_option
from ratchet.cli.progress import progress
from ratchet.cli.words import cost_words, lines, one_line
from ratchet.engines.engine import Failure
from ratchet.kernel import Missing
from ratchet.workflows import views
from ratchet.workflows.evolution import evolve_tool, roll_back_tool
from ratchet.workflows.evolution.requests import choose_tool
from ratchet.workflows.preflight import check_evolution
from ratchet.workflows.profile import WorkflowProfile, profile_run, profile_workflow

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Run

_TOLD = ("evolution.", "attempt.failed", "attempt.error", "tool.")
_MIB = 1024 * 1024


@command(
    "profile",
    examples=["ratchet workflow profile report", "ratchet workflow profile 12 --json | jq .critical_path"],
    see=["workflow evolve"],
)
@click.argument(
    "wanted", metavar="WORKFLOW|RUN", help="The name of a saved workflow, or the number of a run."
)
@click.option("--last", type=COUNT, default=20, show_default=True, help="Look at so many of its last runs.")
@click.pass_obj
def profile_(session: Session, wanted: str, last: int) -> None:
    """Show where the time of a workflow goes, and what to make better first.

    A number is a run; a name stands for the last runs of that workflow. Steps with a * are on the critical path: only
    shortening one of them makes the workflow faster.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = profile_run(tx, ID(wanted)) if wanted.isdecimal() else profile_workflow(tx, wanted, last)
    if session.json:
        print_document(found.data())
    else:
        _print_profile(found)


@command(
    examples=[
        "ratchet workflow evolve word_count --engine codex",
        'ratchet workflow evolve report/clean --why "It is slow on long texts."',
        "ratchet workflow evolve report",
        "ratchet workflow evolve word_count --rollback",
    ],
    see=["tool versions", "workflow profile"],
)
@click.argument("wanted", metavar="TOOL|WORKFLOW", help="What to make better.")
@click.option("--engine", metavar="ENGINE", help="Who rewrites it; see `ratchet engine list`.")
@click.option("--model", metavar="MODEL", help="The model that the engine uses.")
@click.option("--why", metavar="TEXT", help="What should be better; the engine is told.")
@click.option("--rollback", is_flag=True, help="Instead, take the tool back to the version before.")
@simulated_option
@detach_option
@click.pass_obj
def evolve(
    session: Session, /, wanted: str, why: str | None, rollback: bool, detach: bool, **options: Any
) -> int | None:
    """Have a tool rewritten, and keep it only if it proves better.

    An engine is shown the tool, how it has done and what was tried before. What it writes is measured side by side with
    the version in use: on the tool's examples, its tests, and inputs of real calls that the engine has not seen. It is
    promoted only when it gives the same answers and is surely better, or as good at a lower cost.

    TOOL is a tool, or WORKFLOW/TOOL for one that a workflow brings with it. For a WORKFLOW the tool is chosen that is
    worth it most, as `ratchet workflow profile` tells.

    Ctrl-C pauses the work; `ratchet runs resume RUN` hands it to a worker. Exits with 0 when it was judged, also if
    nothing better was found, 1 when nothing came to a verdict, and 3 when the engine is missing.
    """
    with foreground(session.load()) as here:
        chosen = choose_tool(here.runtime, wanted)
        if rollback:
            row = roll_back_tool(here.runtime, chosen.tool, folder=chosen.folder, reason=why, actor="cli")
            confirm(session, views.version_record(row), f"{chosen.name} is back at {row.version}.")
            return None
        asked = {"engine": options["engine"], "model": options["model"], "folder": chosen.folder}
        here.check(partial(check_evolution, here.runtime, chosen.tool, **asked), detach=detach)
        run_id = evolve_tool(
            here.runtime, chosen.tool, folder=chosen.folder, why=why or chosen.why, actor="cli", **options
        )
        if detach:
            confirm(session, {"run_id": run_id}, f"Run {run_id} waits for a worker.")
            return None
        if chosen.why and not session.json:
            note(f"{chosen.name}: {one_line(chosen.why)}")
        with progress(f"making {chosen.name} better", quiet=session.json, told=_TOLD) as hear:
            ended = here.carry(run_id, hear, quiet=session.json)
        return _tell(session, here, chosen.name, ended)


def _tell(session: Session, here: Foreground, tool: str, ended: Run) -> int:
    result = ended.result if isinstance(ended.result, dict) else {}
    if session.json:
        print_document({**views.run_record(ended), "result": ended.result})
    elif result.get("promoted"):
        print(f"{tool} is {result['version']} now: {lines(result['why'])}")
        note(f"`ratchet workflow evolve {tool} --rollback` takes it back.")
    elif result:
        print(f"{tool} stays as it is: {lines(result['why'])}")
    else:
        note(f"Run {ended.id} is {ended.status}: {one_line(ended.reason or 'no reason is known')}")
    if not session.json:
        for number, tried in enumerate(result.get("tries", ()), 1):
            note(f"try {number}: {one_line(tried['summary'])}: {one_line(tried['reason'])}")
    if here.interrupted:
        return INTERRUPTED
    if result.get("judged"):
        return 0
    failures = {tried["failure"] for tried in result.get("tries", ())}
    return Missing.exit_code if Failure.MISSING in failures else 1


def _print_profile(found: WorkflowProfile) -> None:
    from ratchet.cli.tables import print_table

    runs = f"run {found.runs[0]}" if len(found.runs) == 1 else f"{len(found.runs)} runs"
    print(f"{one_line(found.workflow)}: {found.wall_ms:.0f} ms on average in {runs}")
    print()
    print_table(
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
            "cost": lambda step: cost_words(asdict(step)) if step.tokens else None,
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
