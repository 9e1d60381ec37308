"""One research run: where it stands, what it has found, and pausing, resuming and stopping it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic_core import to_jsonable_python
from ratchet.server.console.rendering import Page
from starlette.responses import Response

from ratchet.kernel import IllegalTransition, RunStatus, check_transition
from ratchet.ledger import Run
from ratchet.ledger.research import find_research
from ratchet.ledger.trial_rows import Trial
from ratchet.research import operations, views
from ratchet.research.evidence import columns_of
from ratchet.research.views.plot import draw_plot, plotted
from ratchet.research.views.text import finite
from ratchet.server import research_shapes as shapes
from ratchet.server.console.buttons import add_buttons
from ratchet.server.routes import research_views as api_of_views
from ratchet.server.routes.research import RunName

router = APIRouter()
# What the plot shows of a long run: so many picked evenly, and the newest of what was kept.
_PICKED, _KEPT = 400, 200
add_buttons(router, (operations.pause, operations.resume, operations.stop), "/research/{run}")


@router.get("/research/{run}")
def run(page: Page, run: RunName) -> Response:
    with page.api.read() as tx:
        run_id = find_research(tx, run)
        status = views.read_status(tx, run_id)
        columns = columns_of(status.run)
        shown = plotted(tx, run_id, status.standing.next_number, _PICKED, keeps=_KEPT)
        document = {
            "standing": shapes.Standing.model_validate(status.to_dict()),
            "gained": status.gained,
            "keeps": sum(each.keeps for each in status.specialists.rows),
            "confidence": _confidence(status.best) if status.best and status.best.delta is not None else None,
            "prevented": _prevented(status.run),
            "plot": to_jsonable_python(draw_plot(status, shown)),
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
    return api_of_views.report(page.api, run)


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
