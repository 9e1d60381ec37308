"""What was used, and whether more is allowed.

Usage is real and therefore always recorded, even when it breaks a budget; the budget then refuses what comes next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Literal

import sqlalchemy as sa

from ratchet.kernel import BudgetExceeded, BudgetPolicy, Limits, Usage
from ratchet.ledger.prepared import Prepared
from ratchet.ledger.tables import budgets, usage, usage_days, usage_totals
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.upsert import upserts

_log = logging.getLogger(__name__)
Scope = Literal["attempt", "run", "project", "version"]
"""What has a total of its own. A `version` is one of an agent, for what it uses while it serves."""
DAY_MS = 86_400_000
SCOPES: tuple[Scope, ...] = ("attempt", "run", "project")
"""Those that a `Spender` belongs to: each of their totals is a sum of rows."""

# Built once: they run for every attempt, and building a statement takes longer than running it.
_TOTAL = Prepared(
    sa.select(*(usage_totals.c[f.name] for f in fields(Usage))).where(
        usage_totals.c.scope == sa.bindparam("of"), usage_totals.c.scope_id == sa.bindparam("number")
    )
)
_CHARGE = Prepared(sa.insert(usage))
_ADD = Prepared(
    upserts(
        usage_totals,
        ("scope", "scope_id"),
        lambda new: {f.name: usage_totals.c[f.name] + new[f.name] for f in fields(Usage)},
        returning=[usage_totals.c[f.name] for f in fields(Usage)],
    )
)
_ADD_TO_DAY = Prepared(
    upserts(
        usage_days,
        ("day", "run_id", "engine", "model"),
        lambda new: {f.name: usage_days.c[f.name] + new[f.name] for f in fields(Usage)},
    )
)
_BUDGET = Prepared(
    sa.select(budgets).where(
        budgets.c.scope == sa.bindparam("of"), budgets.c.scope_id == sa.bindparam("number")
    )
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

    def ids(self) -> dict[str, int | None]:
        """Each by the name of its column."""
        return {"attempt_id": self.attempt_id, "run_id": self.run_id, "project_id": self.project_id}

    def scopes(self) -> list[tuple[Scope, int]]:
        return [(scope, number) for scope in SCOPES if (number := getattr(self, f"{scope}_id")) is not None]


def set_budget(
    tx: Transaction, scope: Scope, scope_id: int, limits: Limits, policy: BudgetPolicy | None = None
) -> None:
    """Give one attempt, run or project limits of its own, in place of the configured ones."""
    values = {**asdict(limits), "policy": policy and str(policy)}
    tx.connection.execute(
        tx.insert(budgets)
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
    _CHARGE.rows(
        tx.connection, {"at": tx.now, "engine": engine, "model": model, **spender.ids(), **used.measures()}
    )
    for scope, scope_id in spender.scopes():
        add_total(tx, scope, scope_id, used, defaults, spender)
    # After the total of the run, which is held from then on: nobody else writes to its days meanwhile.
    of_day = {
        "day": tx.now // DAY_MS,
        "run_id": spender.run_id or 0,
        "engine": engine,
        "model": model or "",
        "project_id": spender.project_id,
    }
    _ADD_TO_DAY.rows(tx.connection, {**of_day, **used.measures()})


def add_total(
    tx: Transaction, scope: Scope, scope_id: int, used: Usage, defaults: Budgets, spender: Spender
) -> None:
    """Add to one total what `spender` used. The first time it passes its limit an event says so."""
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
            **spender.ids(),
        )


def check(tx: Transaction, spender: Spender, defaults: Budgets) -> Limits:
    """What may still be used. Raises `BudgetExceeded` when a strict budget has nothing left; others bound nothing."""
    left = Limits()
    for scope, scope_id in spender.scopes():
        left = left.tightest(check_total(tx, scope, scope_id, defaults))
    return left


def check_total(tx: Transaction, scope: Scope, scope_id: int, defaults: Budgets) -> Limits:
    """What one total still allows. Raises `BudgetExceeded` as `check` does."""
    limits, policy = budget_in_force(tx, scope, scope_id, defaults)
    if policy is BudgetPolicy.OFF or limits == Limits():
        return Limits()
    spent = total(tx, scope, scope_id)
    out = limits.reached_by(spent)
    if out and policy is BudgetPolicy.STRICT:
        raise BudgetExceeded(scope, scope_id, *out)
    if out:
        _log.warning("the %s budget of %s %s is used up: %g of %g", out[0], scope, scope_id, out[1], out[2])
    return limits.less(spent) if policy is BudgetPolicy.STRICT else Limits()


def total(tx: Transaction, scope: Scope, scope_id: int) -> Usage:
    """Everything used so far by one attempt, run, project or version."""
    row = _TOTAL.first(tx.connection, {"of": scope, "number": scope_id})
    return Usage(*row) if row else Usage()


def totals(tx: Transaction, scope: Scope, scope_ids: Sequence[int]) -> dict[int, Usage]:
    """The totals of several attempts, runs, projects or versions at once."""
    found = {number: Usage() for number in scope_ids}
    wanted = sa.select(usage_totals).where(usage_totals.c.scope == scope, usage_totals.c.scope_id.in_(found))
    for row in tx.connection.execute(wanted).mappings() if found else ():
        found[row["scope_id"]] = Usage(**{f.name: row[f.name] for f in fields(Usage)})
    return found


def _add(tx: Transaction, scope: Scope, scope_id: int, used: Usage) -> tuple[Usage, Usage]:
    """Add to a total; what it was and what it is. The row stays locked, so the next writer starts from there."""
    new = {"scope": scope, "scope_id": scope_id, **used.measures()}
    (row,) = _ADD.rows(tx.connection, new)
    after = Usage(*row)
    return after.less(used), after


def budget_in_force(
    tx: Transaction, scope: Scope, scope_id: int, defaults: Budgets
) -> tuple[Limits, BudgetPolicy]:
    """The limits of one attempt, run or project, and what they do: its own, or else the configured ones."""
    row = _BUDGET.mapping(tx.connection, {"of": scope, "number": scope_id})
    if row is None:
        return defaults.limits.get(scope, Limits()), defaults.policy
    limits = Limits(**{f.name: row[f.name] for f in fields(Limits)})
    return limits, BudgetPolicy(row["policy"]) if row["policy"] else defaults.policy
