"""Values that are gathered until there are enough of them, over any number of calls, runs and processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ratchet.ledger.tables import tool_buffers
from ratchet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Buffered:
    """How many values lie in a buffer after a write; `flushed` are those that it gave back by it, oldest first."""

    count: int
    flushed: tuple[Any, ...] | None = None


def add_to_buffer(
    tx: Transaction, name: str, value: Any, *, most: int, seconds: float | None = None
) -> Buffered:
    """Add a value. A buffer that is full by it, or whose oldest value is `seconds` old, is emptied and given back."""
    tx.lock_keys(f"buffer:{name}")
    tx.connection.execute(sa.insert(tool_buffers).values(name=name, value=value, at=tx.now))
    count, oldest = tx.connection.execute(
        sa.select(sa.func.count(), sa.func.min(tool_buffers.c.at)).where(tool_buffers.c.name == name)
    ).one()
    if count < most and (seconds is None or tx.now - oldest < seconds * 1000):
        return Buffered(count)
    return Buffered(0, flush_buffer(tx, name))


def flush_buffer(tx: Transaction, name: str) -> tuple[Any, ...]:
    """Empty a buffer; what was in it, oldest first."""
    tx.lock_keys(f"buffer:{name}")
    mine = tool_buffers.c.name == name
    query = sa.select(tool_buffers.c.value).where(mine).order_by(tool_buffers.c.id)
    values = tuple(tx.connection.execute(query).scalars())
    tx.connection.execute(sa.delete(tool_buffers).where(mine))
    return values


def count_buffered(tx: Transaction, name: str) -> int:
    query = sa.select(sa.func.count()).select_from(tool_buffers).where(tool_buffers.c.name == name)
    return int(tx.connection.execute(query).scalar_one())
