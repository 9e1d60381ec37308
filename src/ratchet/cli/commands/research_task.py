"""`ratchet research new`, `check`, `tasks` and `compare`"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm, note, print_document, show_list
from ratchet.cli.params import Amount
from ratchet.cli.session import configure_logs
from ratchet.cli.words import one_line
from ratchet.kernel import Direction, Misuse
from ratchet.operations import record
from ratchet.research import tasks

if TYPE_CHECKING:
    from ratchet.cli.foreground import Foreground
    from ratchet.cli.session import CliSession
    from ratchet.research.checker import TaskCheck
    from ratchet.research.simulation import Comparison, Landscape, RecordedLandscape
    from ratchet.research.start import ResearchRequest

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}
_WIDTH = 58
_INDENT = 20


@command(
    examples=["ratchet research new tides", "ratchet research new tides --directory experiments"],
    see=["research check", "research run"],
)
@click.argument("name", metavar="NAME", help="What to call the task and its folder.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Where the folder is made; here if not given.",
)
def new(session: CliSession, name: str, directory: Path) -> None:
    """Make a folder with a small task to begin with.

    It can be improved as it is. Its task.toml explains every key.
    """
    folder = tasks.scaffold(name, directory)
    confirm(
        session,
        {"task": name, "path": str(folder)},
        f"Made {folder}.\n\nNext: ratchet research check {_named(folder)} --attack",
    )


@command(
    "tasks",
    examples=["ratchet research tasks", "ratchet research tasks --json | jq -r '.[].name'"],
    see=["research run", "research new"],
)
def tasks_(session: CliSession) -> None:
    """List the tasks that are installed.

    These are Ratchet's own and those of other packages. A folder of your own needs no installation: name its path.
    """
    show_list(
        session,
        tasks.installed_tasks(),
        {
            "task": lambda task: task.name,
            "kind": lambda task: task.kind,
            "score": lambda task: task.score_field,
            "better": lambda task: task.direction,
            "known best": lambda task: task.known_best or None,
            "description": lambda task: task.problem or task.description,
        },
        record=record,
        empty="No task is installed. `ratchet research new NAME` makes one.",
    )


@command(
    "check",
    examples=[
        "ratchet research check ./tides",
        "ratchet research check ./tides --attack",
        "ratchet research check circle_packing --json",
    ],
    see=["research run"],
)
@click.argument("task", metavar="TASK", help="A folder with a task.toml, or the name of an installed task.")
@click.option("--variant", metavar="VARIANT", help="A variant of the task; the task itself if not given.")
@click.option(
    "--attack", is_flag=True, help="Also try hostile recipes, broken evaluators and failing machines."
)
def check_(session: CliSession, task: str, variant: str | None, attack: bool) -> int:
    """Check a task before money is spent on it.

    Its baseline is measured, its prompts are built, its tools are asked. Nothing of it is changed. Exits with 1 if
    something failed.
    """
    loaded = session.load()
    configure_logs(loaded)
    report = (lambda _finding: None) if session.json else _print
    # Loaded here: it is made of everything that a run is made of.
    import asyncio

    from ratchet.research.checker import Grade, check

    found = asyncio.run(check(task, variant, attack=attack, real_home=loaded.home, report=report))
    counts = Counter(finding.grade for finding in found)
    if session.json:
        print_document(
            {
                "ok": not counts[Grade.FAILED],
                "counts": {grade: counts[grade] for grade in Grade},
                "seconds": round(sum(finding.seconds for finding in found), 3),
                "findings": [finding.to_dict() for finding in found],
            }
        )
    else:
        click.echo(
            f"\n{counts[Grade.OK]} ok, {counts[Grade.WARNING]} warnings, {counts[Grade.FAILED]} failed"
        )
    return 1 if counts[Grade.FAILED] else 0


def _print(finding: TaskCheck) -> None:
    """A row as soon as it is known."""
    grade = click.style(f"{finding.grade:8}", fg=_COLOURS[finding.grade])
    what = f"{finding.part}: {finding.what}"
    click.echo(f"{grade} {finding.seconds:6.1f} s  {what:{_WIDTH}}  {one_line(finding.detail)}")
    if finding.hint:
        click.echo(f"{'':{_INDENT}}to fix: {one_line(finding.hint)}")


def _named(folder: Path) -> str:
    """The folder as a person would name it: what has no slash could also be an installed task."""
    return str(folder) if "/" in str(folder) else f"./{folder}"


@command(
    examples=[
        "ratchet research compare --landscape rugged --trials 200 --seeds 20",
        "ratchet research compare --recorded 3 --strategies greedy,islands",
        "ratchet research compare circle_packing --engine llm --strategies greedy --trials 50 --seeds 3",
    ],
    see=["research run", "research report"],
)
@click.argument("task", metavar="[TASK]", required=False, help="A task to hold real runs on, with --engine.")
@click.option("--landscape", metavar="NAME", help="Simulate on hill, rugged, deceptive, steps or flat.")
@click.option(
    "--recorded", metavar="RUN", help="Simulate with what the model of this run made of its programs."
)
@click.option(
    "--strategies",
    metavar="A,B",
    default="greedy,islands,clade,adaptive",
    show_default=True,
    help="The arms; best_of_n and sequential are always among them.",
)
@click.option(
    "--trials", type=click.IntRange(1, 10_000), default=200, show_default=True, help="The budget of a run."
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=10, show_default=True, help="Runs of each arm."
)
@click.option(
    "--noise",
    type=Amount(zero=True),
    default=0.0,
    show_default=True,
    help="The spread of simulated scores.",
)
@click.option("--engine", metavar="ENGINE", help="Who proposes in real runs; the task's own if not given.")
@click.option("--model", metavar="MODEL", help="The model in real runs; the task's own if not given.")
@click.option("--parallel", type=click.IntRange(1, 1000), metavar="N", help="Sessions at once in real runs.")
def compare(
    session: CliSession,
    task: str | None,
    landscape: str | None,
    recorded: str | None,
    strategies: str,
    trials: int,
    seeds: int,
    noise: float,
    engine: str | None,
    model: str | None,
    parallel: int | None,
) -> int | None:
    """Compare strategies at equal budgets, and with the plain baselines.

    On a landscape, or with a recorded run, the model is made up: strategies are compared for nothing. On a task real
    runs are held, one of each arm after the other; typed again after an interruption, it continues with those that are
    left. Shows bands and no lines: the middle of an arm's runs, and where eight of ten are.
    """
    from ratchet.research import simulation
    from ratchet.research.start import ResearchRequest

    if sum(each is not None for each in (task, landscape, recorded)) != 1:
        raise Misuse(
            "there are three ways to compare strategies",
            hint=f"name one TASK, or --landscape {'|'.join(simulation.LANDSCAPES)}, or --recorded RUN",
        )
    real = engine is not None or model is not None or parallel is not None
    if (task is None and real) or (task is not None and noise):
        raise Misuse(
            "--engine, --model and --parallel are for real runs on a TASK, and --noise is for simulated ones",
            hint="leave out what is for the other way",
        )
    arms = simulation.with_baselines([each.strip() for each in strategies.split(",") if each.strip()])
    if task is not None:
        wanted = ResearchRequest(task=task, engine=engine, model=model, parallel=parallel, trials=trials)
        return _compare_runs(session, wanted, arms, seeds)
    if landscape is not None and landscape not in simulation.LANDSCAPES:
        raise Misuse(
            f"there is no landscape {landscape!r}", hint=f"there are {', '.join(simulation.LANDSCAPES)}"
        )
    where: Landscape
    if landscape is not None:
        on, where, direction = landscape, simulation.LANDSCAPES[landscape], Direction.MAX
    else:
        on, where, direction = _recorded(session, recorded or "")
    found = simulation.compare_simulated(
        on, where, arms, trials=trials, seeds=seeds, noise=noise, direction=direction
    )
    _show_comparison(session, found)
    return None


def _recorded(session: CliSession, wanted: str) -> tuple[str, RecordedLandscape, Direction]:
    from ratchet.cli.opening import existing_ledger
    from ratchet.ledger.research import find_research, get_standing
    from ratchet.ledger.trial_pages import trial_origins
    from ratchet.research.simulation import RecordedLandscape

    with existing_ledger(session) as ledger, ledger.read() as tx:
        run_id = find_research(tx, wanted)
        direction = get_standing(tx, run_id).direction
        rows = trial_origins(tx, run_id)
    return f"what the model of run {run_id} does", RecordedLandscape(rows, direction), direction


def _show_comparison(session: CliSession, found: Comparison) -> None:
    if session.json:
        print_document(found.to_dict())
    else:
        from ratchet.cli.tables import print_markdown

        print_markdown(found.to_markdown())


def _compare_runs(session: CliSession, wanted: ResearchRequest, arms: list[str], seeds: int) -> int | None:
    from dataclasses import replace
    from functools import partial

    from ratchet.cli.foreground import INTERRUPTED, foreground
    from ratchet.kernel import RunStatus
    from ratchet.ledger.research import get_standing
    from ratchet.research.simulation import compared
    from ratchet.research.start import check_research

    curves: dict[str, list[list[float]]] = {arm: [] for arm in arms}
    assert wanted.trials is not None
    with foreground(session.load()) as here:
        here.check(partial(check_research, here.runtime, wanted), detach=False)
        for seed in range(seeds):
            for arm in arms:
                name = f"{Path(wanted.task).name} {arm} {seed}"
                run_id = _arm_run(here, replace(wanted, name=name, strategy=arm, seed=seed))
                note(f"{name}: run {run_id}")
                ended = here.work_on(run_id, lambda _event: None, quiet=True)
                if here.interrupted:
                    return INTERRUPTED
                if ended.status is not RunStatus.COMPLETED:
                    note(f"Run {run_id} is {ended.status}: {ended.reason}")
                    return 1
                curves[arm].append(_curve(here, run_id, wanted.trials))
        with here.ledger.read() as tx:
            direction = get_standing(tx, run_id).direction
    _show_comparison(session, compared(wanted.task, wanted.trials, curves, direction))
    return None


def _arm_run(here: Foreground, wanted: ResearchRequest) -> int:
    """The run of an arm with a seed: one that was begun before with the same choices, or a new one."""
    from ratchet.kernel import NotFound, RunStatus
    from ratchet.ledger.research import find_research
    from ratchet.ledger.runs import get_run
    from ratchet.research.start import start_research
    from ratchet.runtime import resume_run

    assert wanted.name is not None
    with here.ledger.read() as tx:
        try:
            known = get_run(tx, find_research(tx, wanted.name))
        except NotFound:
            known = None
    if known is not None and _same(known.spec, wanted):
        if known.status in (RunStatus.PAUSED, RunStatus.BLOCKED):
            with here.runtime.ledger.write(actor="cli") as tx:
                resume_run(tx, here.runtime, known.id)
        if known.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
            return known.id
    return start_research(here.runtime, wanted, actor="cli")


def _same(spec: Mapping[str, Any], wanted: ResearchRequest) -> bool:
    task = tasks.find_task(wanted.task, wanted.variant)
    chosen = {**wanted.chosen(), "task_hash": tasks.task_hash(task)}
    # As it was stored.
    return all(spec.get(name) == value for name, value in json.loads(json.dumps(chosen)).items())


def _curve(here: Foreground, run_id: int, trials: int) -> list[float]:
    """What the best was after each trial, in the order in which trials were handed in."""
    from ratchet.ledger.trial_pages import kept_scores

    with here.ledger.read() as tx:
        found = kept_scores(tx, run_id, limit=trials + 1)
    kept = {each.number: each.score for each in found if each.score is not None}
    best = kept[0]
    curve: list[float] = []
    for number in range(1, trials + 1):
        best = kept.get(number, best)
        curve.append(best)
    return curve
