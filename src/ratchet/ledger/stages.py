"""Checkpoints of an attempt: what it has finished, so that a restart goes on behind it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ratchet.ledger.tables import attempts, stages
from ratchet.ledger.transaction import Transaction

_INSERT = sa.insert(stages)
_OF_STEP = (
    sa.select(stages.c.data)
    .join(attempts, attempts.c.id == stages.c.attempt_id)
    .where(attempts.c.step_id == sa.bindparam("step"), stages.c.name == sa.bindparam("wanted"))
    .order_by(attempts.c.number)
)
_OF_ATTEMPT = sa.select(stages.c.name, stages.c.data).where(stages.c.attempt_id == sa.bindparam("attempt"))


def finish_stage(tx: Transaction, attempt_id: int, name: str, data: Any) -> None:
    """Record that the attempt has finished the stage `name`, with what the next ones need of it."""
    tx.connection.execute(_INSERT, {"attempt_id": attempt_id, "name": name, "at": tx.now, "data": data})


def finished_stages(tx: Transaction, attempt_id: int) -> dict[str, Any]:
    """What each finished stage left."""
    return {row.name: row.data for row in tx.connection.execute(_OF_ATTEMPT, {"attempt": attempt_id})}


def stages_of_step(tx: Transaction, step_id: int, name: str) -> list[Any]:
    """What the stage `name` left in each attempt at a step that has finished it, in order."""
    return list(tx.connection.execute(_OF_STEP, {"step": step_id, "wanted": name}).scalars())
