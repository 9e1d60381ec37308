"""Research: the runs, and the tasks that can be run."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic_core import to_jsonable_python
from starlette.responses import JSONResponse, Response

from ratchet.kernel import IllegalTransition, NotFound, RunStatus, check_transition, exp_id
from ratchet.ledger import EventFilter, Run, Transaction
from ratchet.ledger.events import latest
from ratchet.ledger.research import find_research, get_standing
from ratchet.ledger.runs import get_run, list_runs
from ratchet.ledger.trial_pages import children
from ratchet.ledger.trials import Trial, find_trial, get_trial
from ratchet.ledger.usage import of_attempts
from ratchet.research import operations, views
from ratchet.research.campaign import research_directory
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.tasks import TaskAnswer, installed_tasks
from ratchet.research.views import (
    Overview,
    columns_of,
    compare,
    evidence_of,
    overview,
    pairs,
    read_diff,
    tree,
    whole,
    whole_tree,
)
from ratchet.research.views._status import KEEPS
from ratchet.research.views.plot import (
    Frame,
    Scale,
    Tick,
    best_line,
    draw_plot,
    number_ticks,
    plotted,
    score_ticks,
    shown_range,
)
from ratchet.research.views.specialists import expected_delta
from ratchet.research.views.text import finite, number, one_line
from ratchet.research.views.trials import TrialAnswer
from ratchet.server.console.forms import add_buttons
from ratchet.server.console.page import Page
from ratchet.server.fields import Paging, TextFilter
from ratchet.server.operation import shown
from ratchet.server.routes.flows import RunName
from ratchet.server.routes.flows import report as research_report
from ratchet.server.service import Access

# Of what a run has kept, so many steps of its line, so many dots on it, and so many steps of a small line.
_STEPS, _DOTS, _SPARK_STEPS = 300, 60, 40
_SPARK = Frame(width=120, height=28, left=2, right=118, top=3, floor=25, edge=25)


@dataclass(frozen=True, slots=True)
class Dot:
    """Something that was kept, in the line of a run."""

    number: int
    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class PlotLine:
    """`series` tells the lines apart; `text` stands at the end of it, at `x` and `y`."""

    run: int
    series: int
    text: str
    points: str
    x: float
    y: float
    dots: Sequence[Dot]


@dataclass(frozen=True, slots=True)
class Lines:
    frame: Frame
    scores: Sequence[Tick]
    numbers: Sequence[Tick]
    lines: Sequence[PlotLine]


def spark(run: Overview) -> str:
    """The best so far of a run as the points of a small line; empty while there is nothing to see."""
    if len(run.kept) < 2:
        return ""
    across = Scale(run.kept[0][0], max(run.kept[0][0] + 1, run.last), _SPARK.left, _SPARK.right)
    return best_line(_thinned(run.kept, _SPARK_STEPS), run.last, across, _up([run], _SPARK))


def draw_lines(runs: Sequence[Overview]) -> Lines:
    """The runs side by side, over the number of trials."""
    frame = Frame(height=400.0, right=900.0, floor=354.0, edge=354.0)
    across = Scale(0, max((1, *(run.last for run in runs))), frame.left, frame.right)
    up = _up(runs, frame)
    lines = [_line(run, series, across, up) for series, run in enumerate(runs) if run.kept]
    return Lines(frame, score_ticks(up), number_ticks(across), _apart(lines))


def _line(run: Overview, series: int, across: Scale, up: Scale) -> PlotLine:
    name = one_line(run.run.name, 40)
    dots = [
        Dot(at, across(at), up(score), f"{name} {exp_id(at)} {number(score)}")
        for at, score in _thinned(run.kept, _DOTS)
    ]
    points = best_line(_thinned(run.kept, _STEPS), run.last, across, up)
    return PlotLine(run.run.id, series, name[:20], points, across(run.last) + 6, dots[-1].y + 4, dots)


def _thinned(kept: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """So many of them, evenly picked, the first and the last among them."""
    if len(kept) <= most:
        return list(kept)
    return [kept[round(at * (len(kept) - 1) / (most - 1))] for at in range(most)]


def _apart(lines: Sequence[PlotLine], room: float = 14.0) -> list[PlotLine]:
    """The texts at the ends of the lines, moved down where they would cover each other."""
    moved: list[PlotLine] = []
    for line in sorted(lines, key=lambda each: each.y):
        above = max((each.y + room for each in moved if abs(each.x - line.x) < 140), default=-math.inf)
        moved.append(
            PlotLine(line.run, line.series, line.text, line.points, line.x, max(line.y, above), line.dots)
        )
    return sorted(moved, key=lambda each: each.series)


def _up(runs: Sequence[Overview], frame: Frame) -> Scale:
    return Scale(*shown_range([score for run in runs for _, score in run.kept], []), frame.floor, frame.top)


router = APIRouter()


@router.get("/research")
def runs(page: Page, pager: Paging, status: RunStatus | None = None) -> Response:
    found = operations.list_(page.api, pager, status)
    with page.api.read() as tx:
        rows = overview(tx, found.items)
    document = {
        "runs": [{**each.to_dict(), "spark": spark(each)} for each in rows],
        "next": found.next,
        "status": status,
        "statuses": list(RunStatus),
        "tasks": _tasks(),
    }
    return page.show("research.html", document, title="Research", live={} if pager.before is None else None)


# What is installed does not change while the server runs, and reading it all takes longer than the rest of the page.
@functools.cache
def _tasks() -> list[TaskAnswer]:
    return installed_tasks()


_MOST = 8
_OFFERED = 20
Names = Annotated[
    list[Annotated[str, Query(max_length=200)]],
    Query(max_length=_MOST, description="a run, by its number or its name"),
]


@router.get("/research/compare")
def comparison(page: Page, run: Names = []) -> Response:  # noqa: B006 - FastAPI copies it
    with page.api.read() as tx:
        chosen = list(dict.fromkeys(find_research(tx, each) for each in run))
        found = compare(tx, chosen)
        offered = list_runs(tx, kind="research", limit=_OFFERED)
    names = {each.id: each.name for each in offered} | {
        each.run.run.id: each.run.run.name for each in found.rows
    }
    document = {
        **found.to_dict(),
        "plot": draw_lines([each.run for each in found.rows]) if found.rows else None,
        "note": f"The newest {KEEPS:,} that each has kept, thinned where they are many.",
        "choices": [
            {"run": number, "name": names[number], "chosen": number in chosen} for number in sorted(names)
        ],
        "most": _MOST,
    }
    return page.show("research_compare.html", document, title="Compare runs", live={} if chosen else None)


_CHILDREN = 30
_MOST_DIFF = 500_000


@router.get("/research/{run}/trials")
def trials(page: Page, run: RunName, pager: Paging, specialist: TextFilter = None) -> Response:
    found = operations.trials(page.api, pager, run, specialist)
    with page.api.read() as tx:
        of_run = head(get_run(tx, find_research(tx, run)))
    document = {
        "run": of_run,
        "trials": list(map(shown, found.items)),
        "next": found.next,
        "specialist": specialist,
    }
    live = {"run_id": of_run["id"]} if pager.before is None else None
    return page.show("research_trials.html", document, title=f"Trials of {of_run['name']}", live=live)


@router.get("/research/{run}/trials/{exp}")
def trial(page: Page, run: RunName, exp: str) -> Response:
    with page.api.read() as tx:
        found = get_trial(tx, find_research(tx, run), trial_number(exp))
        document = {
            "run": head(get_run(tx, found.run_id)),
            "score_field": get_standing(tx, found.run_id).score_field,
            "expected": _expected(found),
            **_family(tx, found),
            "sessions": _sessions(tx, found),
        }
    evidence = evidence_of(page.api.ledger, found)
    document |= {
        "trial": shown(whole(found, evidence)),
        "pairs": pairs(evidence["certificate_content"]),
        "diff": _diff(page.api, found),
    }
    # One that has ended stays as it is.
    live = {"run_id": found.run_id} if found.status is None else None
    return page.show(
        "research_trial.html", document, title=f"Trial {found.exp_id} of {document['run']['name']}", live=live
    )


def head(run: Run) -> dict[str, Any]:
    """As much of the run as stands over a page about a part of it."""
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "simulated": run.simulated or run.used_recording,
    }


def _expected(trial: Trial) -> float | None:
    """What its specialist expected, as a number, if the text names one."""
    known = trial.score is not None and trial.delta is not None
    return expected_delta(trial.expected_delta, trial.score - trial.delta if known else None)  # type: ignore[operator]


def _family(tx: Transaction, trial: Trial) -> dict[str, Any]:
    parent = None if trial.parent is None else find_trial(tx, trial.run_id, trial.parent)
    newest = children(tx, trial.run_id, trial.number, limit=_CHILDREN + 1)
    return {
        "parent": None if parent is None else shown(TrialAnswer.of(parent)),
        "children": [shown(TrialAnswer.of(each)) for each in newest[:_CHILDREN]],
        "more_children": len(newest) > _CHILDREN,
    }


def _sessions(tx: Transaction, trial: Trial) -> list[dict[str, Any]]:
    """The sessions of the attempt that handed it in."""
    found = [] if trial.attempt_id is None else of_attempts(tx, [trial.attempt_id])
    return [
        {
            "id": each.id,
            "role": each.role,
            "engine": each.engine,
            "model": each.model,
            "failure": each.failure,
        }
        for each in found
    ]


def _diff(api: Access, trial: Trial) -> dict[str, Any] | None:
    """Its patch against its parent; nothing of a run whose files are not here."""
    try:
        patch = read_diff(research_directory(api.runtime.home, trial.run_id), trial)
    except NotFound:
        return None
    return {"text": patch[:_MOST_DIFF], "cut": len(patch) > _MOST_DIFF}


# A browser may keep it, and asks each time whether it still holds.
_KEPT = {"Cache-Control": "private, no-cache"}
After = Annotated[int, Query(ge=-1, le=2**31 - 1, description="continue where `next` of a page said")]


@router.get("/research/{run}/lineage")
def lineage(page: Page, run: RunName, trial: TextFilter = None) -> Response:
    number = None if trial is None else trial_number(trial)
    with page.api.read() as tx:
        run_id = find_research(tx, run)
        document: dict[str, Any] = {
            "run": head(get_run(tx, run_id)),
            "best": get_standing(tx, run_id).best,
            "chosen": trial,
            "tree": tree(tx, run_id, number).to_dict(),
        }
    title = f"Lineage of {document['run']['name']}"
    return page.show("research_lineage.html", document, title=title, live={"run_id": run_id})


@router.get("/research/{run}/lineage/data")
def data(
    page: Page, run: RunName, after: After = -1, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """The tree in pages of columns. A page is as good as new until something happens in the run."""
    with page.api.read() as tx:
        run_id = find_research(tx, run)
        # Read before the trials: what comes in between makes the next answer new once too often, never too seldom.
        newest = latest(tx.connection, where=EventFilter(run_id=run_id), limit=1)
        tag = f'"{run_id}-{after}-{newest[0].id if newest else 0}"'
        if if_none_match == tag:
            return Response(status_code=304, headers={**_KEPT, "ETag": tag})
        content = whole_tree(tx, run_id, after=after)
    return JSONResponse(content, headers={**_KEPT, "ETag": tag})


# What the plot shows of a long run: so many picked evenly, and the newest of what was kept.
_PICKED, _KEPT_IN_PLOT = 400, 200
add_buttons(router, (operations.pause, operations.resume, operations.stop), "/research/{run}")


@router.get("/research/{run}")
def run(page: Page, run: RunName) -> Response:
    with page.api.read() as tx:
        run_id = find_research(tx, run)
        status = views.read_status(tx, run_id)
        columns = columns_of(status.run)
        picked = plotted(tx, run_id, status.standing.next_number, _PICKED, keeps=_KEPT_IN_PLOT)
        document = {
            "standing": shown(status.answer()),
            "gained": status.gained,
            "keeps": sum(each.keeps for each in status.specialists.rows),
            "confidence": _confidence(status.best) if status.best and status.best.delta is not None else None,
            "prevented": _prevented(status.run),
            "plot": to_jsonable_python(draw_plot(status, picked)),
            "columns": columns,
            "leaderboard": views.leaderboard(tx, run_id, columns=columns).to_dict(),
            "misses": views.near_misses(tx, run_id).to_dict(),
            "lessons": views.insights(tx, run_id).to_dict(),
            "calibration": views.calibration(tx, run_id).to_dict(),
            "cost": views.cost(tx, run_id).to_dict(),
        }
    return page.show("research_run.html", document, title=status.run.name, live={"run_id": run_id})


@router.get("/research/{run}/report")
def report(page: Page, run: RunName) -> Response:
    """The report as one file. Its own policy lets its own style in, and nothing else."""
    return research_report(page.api, run)


def _prevented(run: Run) -> dict[str, str | None]:
    """For each action why it cannot be done now, or nothing."""
    waits = run.status.stands and not run.status.final
    needless = f"run {run.id} is {run.status}; only one that is paused or blocked can be resumed"
    return {
        "pause": _illegal(run, RunStatus.PAUSED),
        "resume": None if waits else needless,
        "stop": _illegal(run, RunStatus.CANCELLED),
    }


def _illegal(run: Run, wanted: RunStatus) -> str | None:
    try:
        check_transition("run", run.id, run.status, wanted)
    except IllegalTransition as error:
        return str(error)
    return None


def _confidence(best: Trial) -> dict[str, Any]:
    """How sure it is that the best is better than the one before it. A score without noise needs no test of chance."""
    record = best.measurements if isinstance(best.measurements, dict) else {}
    numbers = {name: finite(record.get(name)) for name in ("p_value", "low", "high")}
    tested = None not in numbers.values()
    untested = dict.fromkeys(numbers)
    return {"delta": finite(best.delta), "test": record.get("test"), **(numbers if tested else untested)}
