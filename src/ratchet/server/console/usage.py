"""What was used and what it cost, and what is left of budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from ratchet.ledger import Transaction
from ratchet.ledger.attention import BudgetStanding, budget_standings, open_runs, usage_report
from ratchet.ledger.projects import list_projects
from ratchet.runtime import configured_budgets
from ratchet.server.console.page import Page
from ratchet.server.overview import MOVING, STANDING, visible_runs
from ratchet.server.service import Access

_WIDTH, _HEIGHT = 900, 120
_WIDEST, _GAP = 28, 1
_LEAST = 2


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: int
    width: float
    height: int
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Bars:
    width: int
    height: int
    bars: Sequence[Bar]


def bars(values: Sequence[tuple[str, float]]) -> Bars:
    """From left to right, the highest over the whole height. What is above nothing can always be seen."""
    highest = max((value for _, value in values), default=0)
    space = min(_WIDEST, _WIDTH / max(1, len(values)))
    drawn = []
    for place, (name, value) in enumerate(values):
        height = max(_LEAST, round(value / highest * _HEIGHT)) if value > 0 else 0
        x, width = round(place * space, 2), round(max(1, space - _GAP), 2)
        drawn.append(Bar(x, _HEIGHT - height, width, height, name, value))
    return Bars(max(1, round(space * len(values))), _HEIGHT, drawn)


_BUDGETS = 50
_MEASURES = ("tokens", "cost_usd", "wall_seconds", "trials")


def usage_of(api: Access, tx: Transaction, days: int) -> dict[str, Any]:
    """Everything that was used in the last `days` days, without projects that the caller may not see."""
    return usage_report(tx, days, hidden=lambda projects: api.caller.hidden(tx, projects))


def budgets_of(api: Access, tx: Transaction) -> dict[str, Any]:
    """The configured limits, and how the runs that have not ended and the projects stand to theirs."""
    defaults = configured_budgets(api.runtime.settings)
    open_now = visible_runs(api, tx, open_runs(tx, *MOVING, *STANDING, limit=_BUDGETS))
    projects = [each.id for each in list_projects(tx, limit=_BUDGETS)]
    hidden = api.caller.hidden(tx, projects)
    seen = [number for number in projects if number not in hidden]
    standings = [
        *budget_standings(tx, "run", [run.id for run in open_now], defaults),
        *budget_standings(tx, "project", seen, defaults),
    ]
    return {
        "policy": defaults.policy,
        "configured": [
            {"scope": scope, **{name: getattr(limits, name) for name in _MEASURES}}
            for scope, limits in defaults.limits.items()
        ],
        "standings": [row for each in standings for row in _rows(each)],
    }


def _rows(standing: BudgetStanding) -> list[dict[str, Any]]:
    return [
        {
            "scope": standing.scope,
            "scope_id": standing.scope_id,
            "policy": standing.policy,
            "measure": name,
            "limit": limit,
            "used": getattr(standing.used, name),
            "left": getattr(standing.left, name),
            "exhausted": getattr(standing.used, name) >= limit,
        }
        for name in _MEASURES
        if (limit := getattr(standing.limits, name)) is not None
    ]


router = APIRouter()
Days = Annotated[int, Query(ge=1, le=366, description="how far back, today among them")]


@router.get("/usage")
def usage(page: Page, days: Days = 30) -> Response:
    with page.api.read() as tx:
        used = usage_of(page.api, tx, days)
        budgets = budgets_of(page.api, tx)
    by_day = {each["day"]: each for each in used["by_day"]}
    measure = "cost_usd" if used["total"]["cost_usd"] else "tokens"
    document = {
        "days": days,
        "usage": used,
        "budgets": budgets,
        "measure": measure,
        "bars": bars([(day, by_day.get(day, {measure: 0})[measure]) for day in used["period"]]),
    }
    return page.show("usage.html", document, title="Usage and budgets", live={"type": "session.ended"})
