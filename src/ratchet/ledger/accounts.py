"""What was used by an attempt, a run, a project or a version of an agent, and the limits in force for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import sqlalchemy as sa

from ratchet.kernel import BudgetPolicy, Limits, Usage
from ratchet.ledger.tables import budgets, usage_totals
from ratchet.ledger.transaction import Transaction

Scope = Literal["attempt", "run", "project", "version"]
"""What has a total of its own. A `version` is one of an agent, for what it uses while it serves."""
SCOPES: tuple[Scope, ...] = ("attempt", "run", "project")
"""Those that a `Spender` belongs to: each of their totals is a sum of rows."""

_LIMITS = tuple(budgets.c[each.name] for each in fields(Limits))
_USED = tuple(usage_totals.c[each.name] for each in fields(Usage))


def _looked_up(count: int) -> sa.Select[Any]:
    """One row for each of `count` scopes, with what there is about it."""
    wanted = sa.union_all(
        *(
            sa.select(
                sa.bindparam(f"scope_{at}", type_=budgets.c.scope.type).label("scope"),
                sa.bindparam(f"number_{at}", type_=budgets.c.scope_id.type).label("number"),
            )
            for at in range(count)
        )
    ).subquery("wanted")
    found: sa.FromClause = wanted
    for table in (budgets, usage_totals):
        found = found.outerjoin(
            table, (table.c.scope == wanted.c.scope) & (table.c.scope_id == wanted.c.number)
        )
    columns = (wanted.c.scope, budgets.c.scope.is_not(None), budgets.c.policy, *_LIMITS, *_USED)
    return sa.select(*columns).select_from(found)


_LOOK_UP = {count: _looked_up(count) for count in range(1, len(SCOPES) + 1)}


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
        ids = zip(SCOPES, (self.attempt_id, self.run_id, self.project_id), strict=True)
        return [(scope, number) for scope, number in ids if number is not None]


@dataclass(frozen=True, slots=True)
class Account:
    """How one of them stands. Its limits are its own, or else the configured ones."""

    scope: Scope
    scope_id: int
    limits: Limits
    policy: BudgetPolicy
    _used: Sequence[Any]

    @property
    def bounded(self) -> bool:
        """Whether there is a limit that means something."""
        return self.policy is not BudgetPolicy.OFF and self.limits != Limits()

    @property
    def spent(self) -> Usage:
        """Everything used so far."""
        return Usage() if self._used[0] is None else Usage(*self._used)


def accounts(tx: Transaction, scopes: Sequence[tuple[Scope, int]], defaults: Budgets) -> list[Account]:
    """How each of these stands, in their order; `defaults` are in force where no budget of its own is set."""
    if not scopes:
        return []
    wanted: dict[str, Any] = {}
    for at, (scope, number) in enumerate(scopes):
        wanted[f"scope_{at}"], wanted[f"number_{at}"] = scope, number
    rows = {row[0]: row[1:] for row in tx.connection.execute(_LOOK_UP[len(scopes)], wanted).all()}
    return [_account(scope, number, rows[scope], defaults) for scope, number in scopes]


def account(tx: Transaction, scope: Scope, scope_id: int, defaults: Budgets) -> Account:
    """How one attempt, run, project or version stands."""
    [found] = accounts(tx, [(scope, scope_id)], defaults)
    return found


def _account(scope: Scope, number: int, row: Sequence[Any], defaults: Budgets) -> Account:
    own, policy, limits, used = row[0], row[1], row[2 : 2 + len(_LIMITS)], row[2 + len(_LIMITS) :]
    if not own:
        return Account(scope, number, defaults.limits.get(scope, Limits()), defaults.policy, used)
    return Account(scope, number, Limits(*limits), BudgetPolicy(policy) if policy else defaults.policy, used)
