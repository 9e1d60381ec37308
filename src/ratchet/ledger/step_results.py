"""What steps came to, by what was run and what it was given, so that nothing is computed twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ratchet.ledger.tables import step_results
from ratchet.ledger.transaction import Transaction

_FIND = sa.select(step_results).where(step_results.c.key == sa.bindparam("wanted"))


@dataclass(frozen=True, slots=True)
class StepResult:
    key: str
    value: Any
    metrics: Any
    created_at: int


def find_step_result(tx: Transaction, key: str, *, not_before: int) -> StepResult | None:
    """The result known as `key`, unless it was made before the moment `not_before` (in milliseconds)."""
    row = tx.connection.execute(_FIND, {"wanted": key}).mappings().first()
    return None if row is None or row["created_at"] < not_before else StepResult(**row)


def keep_step_result(tx: Transaction, key: str, value: Any, metrics: Mapping[str, Any]) -> None:
    """Keep a result, in the place of an older one."""
    row = {"value": value, "metrics": dict(metrics), "created_at": tx.now}
    insert = tx.insert(step_results).values(key=key, **row)
    tx.connection.execute(insert.on_conflict_do_update(index_elements=["key"], set_=row))


def remove_step_results(tx: Transaction, *, before: int, limit: int = 10_000) -> int:
    """Forget the oldest results from before a moment; how many there were."""
    oldest = (
        sa.select(step_results.c.key)
        .where(step_results.c.created_at < before)
        .order_by(step_results.c.created_at)
        .limit(limit)
    )
    return tx.connection.execute(sa.delete(step_results).where(step_results.c.key.in_(oldest))).rowcount
