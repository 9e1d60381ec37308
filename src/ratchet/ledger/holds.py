"""Setting a budget aside for an attempt while it runs.

Attempts side by side would otherwise each be told of the same money. What an attempt has used already is counted as
used; only the rest of its hold is kept from the others. Closing the attempt gives the rest back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import sqlalchemy as sa

from ratchet.kernel import BudgetExceeded, BudgetPolicy, Limits, Usage
from ratchet.ledger.tables import holds, usage_totals
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.usage import Account, Budgets, Scope, Spender, accounts, check


def hold(tx: Transaction, spender: Spender, defaults: Budgets, *, side_by_side: int | None = None) -> Limits:
    """What the attempt may use, set aside until it ends. Raises `BudgetExceeded` when nothing is left for it.

    One of up to `side_by_side` attempts of its run is promised its share of what is left. Where that number is not
    given, only an attempt with a limit of its own can be promised something; one without shares what is left.
    """
    # An attempt that begins has used nothing and has no budget but the configured one.
    strict = defaults.policy is BudgetPolicy.STRICT
    own = defaults.limits.get("attempt", Limits()) if strict else Limits()
    sharing = Spender(None, spender.run_id, spender.project_id)
    allowed = check(tx, sharing, defaults)
    if _unbounded(own) and (side_by_side is None or _unbounded(allowed)):
        return own.tightest(allowed)
    shared = sharing.scopes()
    # Two attempts that begin at once must see each other's holds.
    tx.lock_keys(*(f"budget {scope} {number}" for scope, number in shared))
    left = own.tightest(check(tx, sharing, defaults))
    shares = 1 if side_by_side is None else max(1, side_by_side - _running(tx, spender))
    for each in accounts(tx, shared, defaults):
        left = left.tightest(_share(_unheld(tx, each), own, shares))
    values = {"tokens": left.tokens or 0, "cost_microusd": round((left.cost_usd or 0) * 1_000_000)}
    tx.connection.execute(sa.insert(holds).values(**spender.ids(), **values))
    return left


def _unbounded(limits: Limits) -> bool:
    return limits.tokens is None and limits.cost_usd is None


def _share(free: Limits, own: Limits, shares: int) -> Limits:
    """A part of what is free, of that which the attempt has no limit of its own for."""
    tokens, cost = free.tokens, free.cost_usd
    if tokens is not None and own.tokens is None:
        tokens = -(-tokens // shares)
    if cost is not None and own.cost_usd is None:
        cost /= shares
    return replace(free, tokens=tokens, cost_usd=cost)


def _running(tx: Transaction, spender: Spender) -> int:
    query = sa.select(sa.func.count()).select_from(holds).where(holds.c.run_id == spender.run_id)
    return tx.connection.execute(query).scalar_one()


def _unheld(tx: Transaction, of: Account) -> Limits:
    if of.policy is not BudgetPolicy.STRICT or not of.bounded:
        return Limits()
    taken = of.spent + _held(tx, of.scope, of.scope_id)
    out = Limits(of.limits.tokens, of.limits.cost_usd).reached_by(taken)
    if out is not None:
        raise BudgetExceeded(of.scope, of.scope_id, *out, held=True)
    return of.limits.less(taken)


def _held(tx: Transaction, scope: Scope, number: int) -> Usage:
    """What running attempts may still use. There are only as many rows as attempts that run now."""
    query = (
        sa.select(
            holds.c.tokens,
            holds.c.cost_microusd,
            (usage_totals.c.input_tokens + usage_totals.c.output_tokens).label("used_tokens"),
            usage_totals.c.cost_microusd.label("used_cost"),
        )
        .select_from(
            holds.outerjoin(
                usage_totals,
                (usage_totals.c.scope == "attempt") & (usage_totals.c.scope_id == holds.c.attempt_id),
            )
        )
        .where(holds.c[f"{scope}_id"] == number)
    )
    rows = tx.connection.execute(query).all()
    return Usage(
        input_tokens=_rest((row.tokens, row.used_tokens) for row in rows),
        cost_microusd=_rest((row.cost_microusd, row.used_cost) for row in rows),
    )


def _rest(pairs: Iterable[tuple[int, int | None]]) -> int:
    return sum(max(0, promised - (used or 0)) for promised, used in pairs)
