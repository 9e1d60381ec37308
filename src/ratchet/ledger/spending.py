"""What was used, summed over days, and what is left of budgets: read from sums that are kept, never from history."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from ratchet.kernel import BudgetPolicy, Limits, Usage
from ratchet.ledger.runs import get_run
from ratchet.ledger.tables import budgets, usage_days
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.usage import DAY_MS, Budgets, Scope, totals

By = Literal["day", "engine", "run", "project"]
_MEASURES = tuple(each.name for each in fields(Usage))
_SHOWN = (
    *("input_tokens", "cached_tokens", "output_tokens", "cost_usd", "wall_seconds"),
    *("tokens", "trials"),
)
_MOST_DAYS = 366
_ROWS = 20
_REPLAYED = "replay"
_SUMS = [sa.func.sum(usage_days.c[name]).label(name) for name in _MEASURES]
_KEYS: dict[By, tuple[sa.Column[Any], ...]] = {
    "day": (usage_days.c.day,),
    "engine": (usage_days.c.engine, usage_days.c.model),
    "run": (usage_days.c.run_id,),
    "project": (usage_days.c.project_id,),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of one day, of one engine with one model, of one run or of one project. `key` says of which."""

    key: tuple[Any, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """What one run or project may use, has used, and may still use."""

    scope: Scope
    scope_id: int
    limits: Limits
    policy: BudgetPolicy
    used: Usage

    @property
    def left(self) -> Limits:
        return self.limits.less(self.used)

    @property
    def exhausted(self) -> tuple[str, float, float] | None:
        """The first measure with nothing left, as (measure, used, limit), unless nobody cares."""
        return None if self.policy is BudgetPolicy.OFF else self.limits.reached_by(self.used)


def today(tx: Transaction) -> int:
    """The number of the day that it is, in UTC."""
    return tx.now // DAY_MS


def spent(
    tx: Transaction, by: By, *, since: int, without: Collection[int | None] = (), limit: int = 100
) -> list[Spent]:
    """The usage since a day, those of projects in `without` left out; days newest first, others the most costly first.

    Usage without a run has run 0, and usage that names no model an empty one.
    """
    keys = _KEYS[by]
    query = sa.select(*keys, *_SUMS).where(usage_days.c.day >= since).group_by(*keys).limit(limit)
    hidden = [each for each in without if each is not None]
    if hidden:
        query = query.where(usage_days.c.project_id.is_(None) | usage_days.c.project_id.not_in(hidden))
    if by == "day":
        query = query.order_by(usage_days.c.day.desc())
    else:
        query = query.order_by(sa.desc("cost_microusd"), sa.desc("output_tokens"), sa.desc("wall_ms"), *keys)
    return [
        Spent(
            tuple(row[key.name] for key in keys),
            Usage(**{name: int(row[name]) for name in _MEASURES}),
        )
        for row in tx.connection.execute(query).mappings()
    ]


def usage_report(
    tx: Transaction, days: int, *, hidden: Callable[[Iterable[Any]], Collection[Any]] = lambda _projects: ()
) -> dict[str, Any]:
    """Everything that was used in the last `days` days, without the projects that are `hidden` of those it names."""
    since = today(tx) - min(days, _MOST_DAYS) + 1
    projects = spent(tx, "project", since=since, limit=1000)
    without = hidden(each.key[0] for each in projects)
    by_day = spent(tx, "day", since=since, without=without, limit=_MOST_DAYS)
    by_engine = spent(tx, "engine", since=since, without=without)
    by_run = spent(tx, "run", since=since, without=without, limit=_ROWS)
    return {
        "period": [_date(day) for day in range(since, today(tx) + 1)],
        "total": _sum(by_day),
        "known_cost_usd": sum(each.usage.cost_usd for each in by_day),
        "replayed": _sum([each for each in by_engine if _is_replayed(each)]),
        "unpriced": _sum([each for each in by_engine if not _is_priced(each)]),
        "by_day": [{"day": _date(each.key[0]), **_record(each.usage)} for each in by_day],
        "by_engine": [
            {
                "engine": each.key[0],
                "model": each.key[1] or None,
                "simulated": _is_replayed(each),
                "priced": _is_priced(each),
                **_record(each.usage),
            }
            for each in by_engine
        ],
        "by_run": [_of_run(tx, each) for each in by_run],
        "by_project": [
            {"project_id": each.key[0], **_record(each.usage)}
            for each in projects[:_ROWS]
            if each.key[0] is not None and each.key[0] not in without
        ],
    }


def _of_run(tx: Transaction, each: Spent) -> dict[str, Any]:
    if each.key[0] == 0:
        return {"run_id": None, "kind": None, "name": "no run", "simulated": False, **_record(each.usage)}
    run = get_run(tx, each.key[0])
    simulated = run.simulated or run.used_recording
    return {
        "run_id": run.id,
        "kind": run.kind,
        "name": run.name,
        "simulated": simulated,
        **_record(each.usage),
    }


def _record(used: Usage) -> dict[str, Any]:
    """What was used. A cost of which a part is unknown is null."""
    return {name: getattr(used, name) for name in _SHOWN} | {"cost_usd": used.whole_cost_usd}


def _sum(found: Sequence[Spent]) -> dict[str, Any]:
    return _record(sum((each.usage for each in found), Usage()))


def _is_replayed(each: Spent) -> bool:
    """Whether a recording was played: nobody was paid for it."""
    return bool(str(each.key[0]).partition(":")[0] == _REPLAYED)


def _is_priced(each: Spent) -> bool:
    """Whether money is known where tokens were used."""
    return each.usage.unpriced_tokens == 0 or _is_replayed(each)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()


def budget_standings(
    tx: Transaction, scope: Scope, scope_ids: Sequence[int], defaults: Budgets
) -> list[BudgetStanding]:
    """How those of them stand that have any limit, their own or a configured one."""
    own = sa.select(budgets).where(budgets.c.scope == scope, budgets.c.scope_id.in_(scope_ids))
    rows = {row["scope_id"]: row for row in tx.connection.execute(own).mappings()} if scope_ids else {}
    used = totals(tx, scope, scope_ids)
    standings = []
    for number in dict.fromkeys(scope_ids):
        limits, policy = defaults.limits.get(scope, Limits()), defaults.policy
        if number in rows:
            row = rows[number]
            limits = Limits(**{each.name: row[each.name] for each in fields(Limits)})
            policy = BudgetPolicy(row["policy"]) if row["policy"] else policy
        if limits != Limits():
            standings.append(BudgetStanding(scope, number, limits, policy, used[number]))
    return standings
