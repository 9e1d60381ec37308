"""What was used, by day, engine, run and project, and what is left of budgets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ratchet.kernel import Usage
from ratchet.ledger import Transaction
from ratchet.ledger.attention import open_runs
from ratchet.ledger.projects import list_projects
from ratchet.ledger.runs import get_run
from ratchet.ledger.spending import BudgetStanding, Spent, budget_standings, spent, today
from ratchet.ledger.usage import DAY_MS
from ratchet.runtime import configured_budgets
from ratchet.server import session_shapes
from ratchet.server.going_on import MOVING, STANDING, visible_runs
from ratchet.server.service import Access

_MOST_DAYS = 366
_ROWS = 20
_BUDGETS = 50
_MEASURES = ("tokens", "cost_usd", "wall_seconds", "trials")
_REPLAYED = "replay"


class Measures(session_shapes.Usage):
    tokens: int
    trials: int


def usage_of(api: Access, tx: Transaction, days: int) -> dict[str, Any]:
    """Everything that was used in the last `days` days, without projects that the caller may not see."""
    since = today(tx) - min(days, _MOST_DAYS) + 1
    projects = spent(tx, "project", since=since, limit=1000)
    hidden = api.caller.hidden(tx, (each.key[0] for each in projects))
    by_day = spent(tx, "day", since=since, without=hidden, limit=_MOST_DAYS)
    by_engine = spent(tx, "engine", since=since, without=hidden)
    by_run = spent(tx, "run", since=since, without=hidden, limit=_ROWS)
    return {
        "period": [_date(day) for day in range(since, today(tx) + 1)],
        "total": _sum(by_day),
        "known_cost_usd": sum(each.usage.cost_usd for each in by_day),
        "replayed": _sum([each for each in by_engine if _is_replayed(each)]),
        "unpriced": _sum([each for each in by_engine if not _is_priced(each)]),
        "by_day": [{"day": _date(each.key[0]), **_record(each)} for each in by_day],
        "by_engine": [
            {
                "engine": each.key[0],
                "model": each.key[1] or None,
                "simulated": _is_replayed(each),
                "priced": _is_priced(each),
                **_record(each),
            }
            for each in by_engine
        ],
        "by_run": [_of_run(tx, each) for each in by_run],
        "by_project": [
            {"project_id": each.key[0], **_record(each)}
            for each in projects[:_ROWS]
            if each.key[0] is not None and each.key[0] not in hidden
        ],
    }


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


def _of_run(tx: Transaction, each: Spent) -> dict[str, Any]:
    if each.key[0] == 0:
        return {"run_id": None, "kind": None, "name": "no run", "simulated": False, **_record(each)}
    run = get_run(tx, each.key[0])
    simulated = run.simulated or run.used_recording
    return {"run_id": run.id, "kind": run.kind, "name": run.name, "simulated": simulated, **_record(each)}


def _record(each: Spent) -> dict[str, Any]:
    return Measures.model_validate(each.usage).model_dump()


def _sum(found: Sequence[Spent]) -> dict[str, Any]:
    return Measures.model_validate(sum((each.usage for each in found), Usage())).model_dump()


def _is_replayed(each: Spent) -> bool:
    """Whether a recording was played: nobody was paid for it."""
    return bool(str(each.key[0]).partition(":")[0] == _REPLAYED)


def _is_priced(each: Spent) -> bool:
    """Whether money is known where tokens were used."""
    return each.usage.unpriced_tokens == 0 or _is_replayed(each)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()
