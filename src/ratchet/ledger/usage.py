"""What was used, and whether more is allowed.

Usage is real and therefore always recorded, even when it breaks a budget; the budget then refuses what comes next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ratchet.kernel import BudgetExceeded, BudgetPolicy, Limits, Usage
from ratchet.ledger.tables import budgets, usage, usage_totals
from ratchet.ledger.transaction import Transaction

_log = logging.getLogger(__name__)
Scope = Literal["attempt", "run", "project"]
SCOPES: tuple[Scope, ...] = ("attempt", "run", "project")

# Built once: they run for every attempt, and building a statement takes longer than running it.
_TOTAL = sa.select(*(usage_totals.c[f.name] for f in fields(Usage))).where(
    usage_totals.c.scope == sa.bindparam("of"), usage_totals.c.scope_id == sa.bindparam("number")
)
_BUDGET = sa.select(budgets).where(
    budgets.c.scope == sa.bindparam("of"), budgets.c.scope_id == sa.bindparam("number")
)


@dataclass(frozen=True, slots=True)
class Budgets:
    """The limits in force where no budget of its own is set."""

    policy: BudgetPolicy = BudgetPolicy.STRICT
    limits: Mapping[Scope, Limits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spender:
    """Who uses: any of an attempt, its run and its project."""

    attempt_id: int | None = None
    run_id: int | None = None
    project_id: int | None = None

    def scopes(self) -> list[tuple[Scope, int]]:
        return [(scope, number) for scope in SCOPES if (number := getattr(self, f"{scope}_id")) is not None]


def set_budget(
    tx: Transaction, scope: Scope, scope_id: int, limits: Limits, policy: BudgetPolicy | None = None
) -> None:
    """Give one attempt, run or project limits of its own, in place of the configured ones."""
    values = {**asdict(limits), "policy": policy and str(policy)}
    tx.connection.execute(
        _insert(tx, budgets)
        .values(scope=scope, scope_id=scope_id, **values)
        .on_conflict_do_update(index_elements=["scope", "scope_id"], set_=values)
    )
    tx.event(
        "budget.set",
        message=f"{scope} {scope_id}",
        data={"scope": scope, "scope_id": scope_id, **values},
        run_id=scope_id if scope == "run" else None,
        project_id=scope_id if scope == "project" else None,
    )


def charge(
    tx: Transaction,
    spender: Spender,
    used: Usage,
    defaults: Budgets,
    *,
    engine: str,
    model: str | None = None,
) -> None:
    """Record `used` and add it to every total. Does not raise: call `check` before spending more.

    The first time a total passes its limit an event says so.
    """
    tx.connection.execute(
        sa.insert(usage).values(at=tx.now, engine=engine, model=model, **asdict(spender), **asdict(used))
    )
    for scope, scope_id in spender.scopes():
        before, after = _add(tx, scope, scope_id, used)
        limits, policy = budget_in_force(tx, scope, scope_id, defaults)
        over = limits.exceeded_by(after)
        if policy is not BudgetPolicy.OFF and over and not limits.exceeded_by(before):
            measure, amount, limit = over
            tx.event(
                "budget.exceeded",
                message=f"{measure} of {scope} {scope_id}: {amount:g} of {limit:g}",
                data={
                    "scope": scope,
                    "scope_id": scope_id,
                    "measure": measure,
                    "used": amount,
                    "limit": limit,
                    "policy": policy,
                },
                **asdict(spender),
            )


def check(tx: Transaction, spender: Spender, defaults: Budgets) -> Limits:
    """What may still be used. Raises `BudgetExceeded` when a strict budget has nothing left; others bound nothing."""
    left = Limits()
    for scope, scope_id in spender.scopes():
        limits, policy = budget_in_force(tx, scope, scope_id, defaults)
        if policy is BudgetPolicy.OFF or limits == Limits():
            continue
        spent = total(tx, scope, scope_id)
        out = limits.reached_by(spent)
        if out and policy is BudgetPolicy.STRICT:
            raise BudgetExceeded(scope, scope_id, *out)
        if out:
            _log.warning(
                "the %s budget of %s %s is used up: %g of %g", out[0], scope, scope_id, out[1], out[2]
            )
        elif policy is BudgetPolicy.STRICT:
            left = left.tightest(limits.less(spent))
    return left


def total(tx: Transaction, scope: Scope, scope_id: int) -> Usage:
    """Everything used so far by one attempt, run or project."""
    row = tx.connection.execute(_TOTAL, {"of": scope, "number": scope_id}).mappings().first()
    return Usage(**row) if row else Usage()


def _add(tx: Transaction, scope: Scope, scope_id: int, used: Usage) -> tuple[Usage, Usage]:
    """Add to a total; what it was and what it is. The row stays locked, so the next writer starts from there."""
    added = asdict(used)
    row = (
        tx.connection.execute(
            _insert(tx, usage_totals)
            .values(scope=scope, scope_id=scope_id, **added)
            .on_conflict_do_update(
                index_elements=["scope", "scope_id"],
                set_={name: usage_totals.c[name] + value for name, value in added.items()},
            )
            .returning(*(usage_totals.c[name] for name in added))
        )
        .mappings()
        .one()
    )
    return Usage(**{name: row[name] - value for name, value in added.items()}), Usage(**row)


def budget_in_force(
    tx: Transaction, scope: Scope, scope_id: int, defaults: Budgets
) -> tuple[Limits, BudgetPolicy]:
    """The limits of one attempt, run or project, and what they do: its own, or else the configured ones."""
    row = tx.connection.execute(_BUDGET, {"of": scope, "number": scope_id}).mappings().first()
    if row is None:
        return defaults.limits.get(scope, Limits()), defaults.policy
    limits = Limits(**{f.name: row[f.name] for f in fields(Limits)})
    return limits, BudgetPolicy(row["policy"]) if row["policy"] else defaults.policy


def _insert(tx: Transaction, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if tx.on_postgresql else sqlite.insert(table)
