"""What was used, summed over days, and what is left of budgets: read from sums that are kept, never from history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import sqlalchemy as sa

from ratchet.kernel import BudgetPolicy, Limits, Usage
from ratchet.ledger.accounts import Budgets, Scope
from ratchet.ledger.tables import budgets, usage_days
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.usage import DAY_MS, totals

By = Literal["day", "engine", "run", "project"]
_MEASURES = tuple(each.name for each in fields(Usage))
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
