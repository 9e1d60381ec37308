"""What was used, by day, engine, run and project, and what is left of budgets."""

from __future__ import annotations

from typing import Any

from ratchet.ledger import Transaction
from ratchet.ledger.attention import open_runs
from ratchet.ledger.projects import list_projects
from ratchet.ledger.spending import BudgetStanding, budget_standings, usage_report
from ratchet.runtime import configured_budgets
from ratchet.server.going_on import MOVING, STANDING, visible_runs
from ratchet.server.service import Access

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
