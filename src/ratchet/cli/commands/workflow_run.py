"""`ratchet workflow new`, `run`, `evolve` and `export`: what works on a workflow"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.commands.workflow import existing_file, print_outcome, print_plan
from ratchet.cli.foreground import INTERRUPTED, Foreground, foreground
from ratchet.cli.inputs import input_options, split_pair, workflow_inputs
from ratchet.cli.opening import existing_runtime
from ratchet.cli.operation import CliCall
from ratchet.cli.output import confirm, note, print_document, print_line, show_page
from ratchet.cli.params import (
    ID,
    PRIORITY,
    detach_option,
    from_file_option,
    given_text,
    simulated_option,
    source_argument,
)
from ratchet.cli.progress import progress, workflow_progress, working
from ratchet.cli.words import lines, one_line
from ratchet.engines.engine import Failure
from ratchet.flowkit.reader import read_spec
from ratchet.kernel import Conflict, Missing, Misuse, RunId, RunStatus
from ratchet.ledger.usage import list_sessions
from ratchet.operations import record
from ratchet.runtime import Kinds
from ratchet.tools.operations import ToolVersionAnswer
from ratchet.tools.programs import NOT_FOUND
from ratchet.workflows.evolution import evolve_tool, roll_back_tool
from ratchet.workflows.evolution.requests import choose_tool
from ratchet.workflows.exports import Exported, export_workflow, read_target
from ratchet.workflows.files import read_file
from ratchet.workflows.operations import LONGEST_SENTENCE, OutcomeAnswer, WorkflowRunAnswer, outcome
from ratchet.workflows.overseer import Planned, planned_of, start_fill, start_plan
from ratchet.workflows.overseer.request import checked_sentence
from ratchet.workflows.preflight import check_evolution, check_overseer, check_workflow
from ratchet.workflows.runs import prepare, start_workflow
from ratchet.workflows.saved import load_workflow, names_file
from ratchet.workflows.views import plan_record

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.ledger import Run

PLANNED = ("workflow.", "attempt.failed", "attempt.error")
_EVOLVED = ("evolution.", "attempt.failed", "attempt.error", "tool.")


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
@click.option("--no-reuse", is_flag=True, help="Plan it again, also if a plan for this is remembered.")
@click.option("--keep-tools", is_flag=True, help="Put tools that are written for it among all others.")
@simulated_option
@detach_option
def new(
    session: CliSession,
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
    when it failed, 3 when the engine is missing.
    """
    sentence = checked_sentence(given_text(what, file, most_bytes=4 * LONGEST_SENTENCE))
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
        with progress("planning", quiet=session.json, told=PLANNED) as hear:
            ended = here.work_on(run_id, hear, quiet=session.json)
        return _print_planned(session, here, ended, target)


@command(
    examples=["ratchet workflow fill report.json", "ratchet workflow fill report.yaml --out report.json"],
    see=["workflow validate", "workflow run"],
)
@click.argument("file", metavar="FILE", help="A file of YAML or JSON.")
@click.option("--out", metavar="FILE", help="Write it here, as JSON; into FILE itself if that is JSON.")
@click.option("--engine", metavar="ENGINE", help="Who writes; see `ratchet engine list`.")
@click.option("--model", metavar="MODEL", help="The model that the engine uses.")
@simulated_option
def fill(session: CliSession, file: str, out: str | None, **options: Any) -> int:
    """Have the tools written that a workflow asks for.

    Each step with `generate_tool: true` gets a Python tool with schemas and examples, which is tried on its examples
    before it counts. The workflow carries them from then on, and is saved as well. Exits with 0 when all are written, 1
    when it failed, 3 when the engine is missing.
    """
    spec = read_file(existing_file(file))
    if out is None and not file.endswith(".json"):
        raise Misuse(
            f"{file} is not JSON, so it is not written again", hint="say with --out where to write it"
        )
    target = Path(file) if out is None else _free_file(out)
    asked = {"reuse": False, "engine": options["engine"], "model": options["model"]}
    with foreground(session.load()) as here:
        here.check(partial(check_overseer, here.runtime, spec.workflow_id, **asked), detach=False)
        run_id = start_fill(here.runtime, spec, actor="cli", **options)
        with progress("writing", quiet=session.json, told=PLANNED) as hear:
            ended = here.work_on(run_id, hear, quiet=session.json)
        return _print_planned(session, here, ended, target)


def _free_file(out: str) -> Path:
    path = Path(out)
    if path.exists():
        raise Conflict(f"{out} exists already", hint="name another file, or remove it")
    return path


def _print_planned(session: CliSession, here: Foreground, ended: Run, target: Path | None) -> int:
    if ended.status is not RunStatus.COMPLETED:
        return print_why_not(session, here, ended)
    planned = planned_of(ended)
    if target is not None:
        target.write_text(json.dumps(planned.spec, indent=2, ensure_ascii=False) + "\n")
    if session.json:
        print_document({"run_id": ended.id, **planned.data})
        return 0
    with here.ledger.read() as tx:
        print_plan(plan_record(tx, read_spec(planned.spec)))
    _print_how(planned)
    if target is not None:
        note(f"It is in {target}, too.")
    return 0


def _print_how(planned: Planned) -> None:
    if planned.reused is not None:
        note(f"No model was asked: {one_line(planned.reused.reason)}: {one_line(planned.reused.sentence)!r}.")
        note("--no-reuse plans it again.")
    elif planned.template is not None:
        note(f"The overseer was shown {planned.template} as an example.")
    for problem in planned.repaired:
        note(f"fixed: {one_line(problem)}")
    for remark in planned.notes:
        note(one_line(remark))
    if planned.tools_generated:
        note(f"written for it: {', '.join(planned.tools_generated)}")
    if planned.simulated:
        note("This is a simulation: a recorded session was used.")
    note(f"Saved as {planned.workflow}: `ratchet workflow run {planned.workflow} --input KEY=VALUE` runs it.")


def print_why_not(session: CliSession, here: Foreground, ended: Run) -> int:
    """Why there is no plan, and what to do about it; the exit code."""
    result = ended.result if isinstance(ended.result, dict) else {}
    if session.json:
        print_document({**record(WorkflowRunAnswer.of(ended)), "result": ended.result})
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
    "--follow", "-f", "following", is_flag=True, help="Show everything that happens, as it happens."
)
@click.option("--no-cache", is_flag=True, help="Run every step again, also one whose result is known.")
@click.option("--spread", is_flag=True, help="Offer steps that find no place here to other workers.")
@click.option("--background", is_flag=True, help="Give way to whatever else there is to do.")
@click.option("--priority", type=PRIORITY, help="0 is done first, 9 last; 5 if not given.")
@simulated_option
@detach_option
def run(
    session: CliSession,
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


def _carry(
    session: CliSession, here: Foreground, run_id: int, name: str, steps: int, *, following: bool
) -> int:
    with workflow_progress(name, steps, quiet=session.json, follow=following) as hear:
        ended = here.work_on(run_id, hear, quiet=session.json, give_up=True)
    found = outcome(CliCall(session, here.ledger, here.runtime), run_id)
    with here.ledger.read() as tx:
        last = list_sessions(tx, run_id=run_id, limit=1) if ended.status is RunStatus.BLOCKED else ()
    if session.json and following:
        print_line(record(found))
    else:
        print_outcome(found, as_json=session.json)
    if here.interrupted:
        return INTERRUPTED
    if ended.status is RunStatus.COMPLETED:
        return 0
    lacks_engine = any(each.failure == Failure.MISSING for each in last)
    return Missing.exit_code if lacks_engine or _lacks_program(found) else 1


def _lacks_program(found: OutcomeAnswer) -> bool:
    """Whether a step failed because something it needs is not on this machine."""
    return any(
        step.status == "failed" and step.metrics.get("exit_code") == NOT_FOUND
        for step in found.steps.values()
    )


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
@click.option("--why", metavar="TEXT", help="What should be better; the engine reads it.")
@click.option("--rollback", is_flag=True, help="Instead, take the tool back to the version before.")
@simulated_option
@detach_option
def evolve(
    session: CliSession, /, wanted: str, why: str | None, rollback: bool, detach: bool, **options: Any
) -> int | None:
    """Have a tool rewritten, and keep it only if it proves better.

    An engine is shown the tool, how it has done and what was tried before. What it writes is measured side by side with
    the version in use: on the tool's examples, its tests, and inputs of real calls that the engine has not seen. It is
    promoted only when it gives the same answers and is surely better, or as good at a lower cost.

    TOOL is a tool, or WORKFLOW/TOOL for one that a workflow brings with it. For a WORKFLOW the tool is chosen that is
    worth it most, as `ratchet workflow profile` shows.

    Ctrl-C pauses the work; `ratchet runs resume RUN` hands it to a worker. Exits with 0 when it was judged, also if
    nothing better was found, 1 when nothing was judged, and 3 when the engine is missing.
    """
    with foreground(session.load()) as here:
        chosen = choose_tool(here.runtime, wanted)
        if rollback:
            row = roll_back_tool(here.runtime, chosen.tool, folder=chosen.folder, reason=why, actor="cli")
            confirm(
                session,
                record(ToolVersionAnswer.of(row, is_called=True)),
                f"{chosen.name} is back at {row.version}.",
            )
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
        with progress(f"making {chosen.name} better", quiet=session.json, told=_EVOLVED) as hear:
            ended = here.work_on(run_id, hear, quiet=session.json)
        return _print_evolved(session, here, chosen.name, ended)


def _print_evolved(session: CliSession, here: Foreground, tool: str, ended: Run) -> int:
    result = ended.result if isinstance(ended.result, dict) else {}
    if session.json:
        print_document({**record(WorkflowRunAnswer.of(ended)), "result": ended.result})
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


@command(
    examples=[
        "ratchet workflow export report --target cloud --out report-cloud --model '*=openai/gpt-5-mini'",
        "ratchet workflow export report.yaml --target embedded --run 12 --out report-embedded",
    ]
)
@source_argument
@click.option("--target", required=True, metavar="TARGET", help="cloud, edge, embedded or wasm.")
@click.option("--out", required=True, metavar="DIR", help="The folder to write; it must be empty or absent.")
@click.option(
    "--run", "run_id", type=ID, metavar="RUN", help="A completed run, whose answers are taken along."
)
@click.option(
    "--model",
    "models",
    metavar="NAME=MODEL",
    multiple=True,
    help="Which model answers for which; * is all others.",
)
@click.option("--force", is_flag=True, help="Write into a folder that is not empty, and replace its files.")
def export(
    session: CliSession,
    source: str,
    target: str,
    out: str,
    run_id: int | None,
    models: tuple[str, ...],
    force: bool,
) -> None:
    """Write a workflow as a folder that runs without Ratchet.

    cloud asks hosted models (OpenAI, Anthropic), edge an Ollama nearby, embedded no model at all: it needs steps that
    only compute, or the recorded answers of a run. wasm is embedded for WebAssembly, where Node runs it. Each folder
    has pinned requirements, a README and a test, and gives the same outputs. The workflow itself is not changed.
    """
    wanted = read_target(target)
    if names_file(source):
        existing_file(source)
    with existing_runtime(session, Kinds()) as runtime, working("exporting"):
        spec, base = load_workflow(runtime, source)
        exported = asyncio.run(
            export_workflow(
                spec,
                wanted,
                Path(out),
                runtime=runtime,
                run_id=None if run_id is None else RunId(run_id),
                models=dict(map(split_pair, models)) or None,
                base=base,
                force=force,
            )
        )
    show_page(session, record(exported), _print_exported, exported)


def _print_exported(exported: Exported) -> None:
    print(f"{exported.folder}: {len(exported.files)} files for {exported.target}")
    for name, model in exported.models.items():
        print(lines(f"{name} is answered by {model}"))
    if exported.recorded:
        print(f"{exported.recorded} answers are taken from the run")
    for each in exported.notes:
        note(lines(each))
    note(f"Its README says how to run it: {exported.folder / 'README.md'}")
