"""The calls of tools: each as it was measured, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from ratchet.ledger._columns import to_json
from ratchet.ledger.tables import tool_buffers, tool_calls, tool_starts, tool_versions, tools
from ratchet.ledger.transaction import Transaction
from ratchet.operations import described

# Larger inputs and outputs are not kept with a call.
KEPT_BYTES = 16 * 1024
_HOUR_MS = 3_600_000
_BATCH = 500


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call of a version of a tool. Inputs and outputs that are too large to be kept are `None`."""

    tool_id: int
    version_id: int
    ok: bool
    wall_ms: float
    at: int
    error: str | None = None
    cpu_ms: float | None = None
    peak_bytes: int | None = None
    cost_microusd: int = 0
    tokens: int = 0
    unpriced_tokens: int = 0
    score: float | None = None
    input: Any = None
    output: Any = None
    run_id: int | None = None
    step: str | None = None
    simulated: bool = False
    id: int | None = None
    """Given by the ledger."""


@dataclass(frozen=True, slots=True)
class CallStats:
    """How a version fares. The first six and the mean score are over all its calls, the others over the last few.

    `recent` says how many those are. Calls of simulations count nowhere. What was never measured is `None`. What
    `unpriced_tokens` cost nobody knows: it is not in the costs.
    """

    runs: int
    failures: int
    mean_wall_ms: float | None
    cost_microusd: int = field(metadata=described("what is known of the cost"))
    tokens: int
    unpriced_tokens: int = field(metadata=described("those of unknown price; their cost comes on top"))
    mean_score: float | None
    recent: int
    recent_success_rate: float | None
    recent_wall_ms: float | None
    recent_p95_ms: float | None
    recent_peak_bytes: int | None
    recent_cost_microusd: float | None
    recent_score: float | None
    success_rate: float | None = field(init=False)

    def __post_init__(self) -> None:
        rate = None if self.runs == 0 else (self.runs - self.failures) / self.runs
        object.__setattr__(self, "success_rate", rate)


def record_calls(tx: Transaction, rows: Sequence[CallRow]) -> None:
    """Write calls down, and add them to the sums of their versions."""
    for start in range(0, len(rows), _BATCH):
        tx.connection.execute(sa.insert(tool_calls), [_values(row) for row in rows[start : start + _BATCH]])
    # In the order of their numbers, so that two who record at once never wait for each other.
    for version_id in sorted({row.version_id for row in rows if not row.simulated}):
        _add_up(tx, version_id, [row for row in rows if row.version_id == version_id and not row.simulated])


def calls_of(
    tx: Transaction, version_id: int, *, limit: int = 100, before: int | None = None
) -> list[CallRow]:
    """Calls of a version, newest first."""
    query = sa.select(tool_calls).where(tool_calls.c.version_id == version_id)
    if before is not None:
        query = query.where(tool_calls.c.id < before)
    found = tx.connection.execute(query.order_by(tool_calls.c.id.desc()).limit(limit))
    return [CallRow(**row._mapping) for row in found]


def calls_of_tool(tx: Transaction, tool_id: int, *, limit: int = 100) -> list[CallRow]:
    """Calls of all versions of a tool, newest first."""
    query = sa.select(tool_calls).where(tool_calls.c.tool_id == tool_id)
    order = (tool_calls.c.at.desc(), tool_calls.c.id.desc())
    return [CallRow(**row._mapping) for row in tx.connection.execute(query.order_by(*order).limit(limit))]


def score_call(tx: Transaction, call_id: int, score: float) -> None:
    """Say how good a call was, from 0 to 1. A later word replaces an earlier one."""
    query = sa.select(tool_calls.c.version_id, tool_calls.c.score, tool_calls.c.simulated)
    row = tx.connection.execute(query.where(tool_calls.c.id == call_id)).one()
    tx.connection.execute(sa.update(tool_calls).where(tool_calls.c.id == call_id).values(score=score))
    if row.simulated:
        return
    change = {
        "scored": tool_versions.c.scored + (1 if row.score is None else 0),
        "score_sum": tool_versions.c.score_sum + score - (row.score or 0.0),
    }
    tx.connection.execute(
        sa.update(tool_versions).where(tool_versions.c.id == row.version_id).values(**change)
    )


def call_stats(tx: Transaction, version_id: int, *, last: int = 100) -> CallStats:
    """How a version fares. However long its history is, only the `last` calls of it are read."""
    names = (
        "calls",
        "failures",
        "wall_ms",
        "cost_microusd",
        "tokens",
        "unpriced_tokens",
        "scored",
        "score_sum",
    )
    sums = tx.connection.execute(
        sa.select(*(tool_versions.c[name] for name in names)).where(tool_versions.c.id == version_id)
    ).one()
    measured = ("ok", "wall_ms", "peak_bytes", "cost_microusd", "score", "simulated")
    query = sa.select(*(tool_calls.c[name] for name in measured)).where(tool_calls.c.version_id == version_id)
    found = tx.connection.execute(query.order_by(tool_calls.c.id.desc()).limit(last)).all()
    recent = [row for row in found if not row.simulated]
    return CallStats(
        runs=sums.calls,
        failures=sums.failures,
        mean_wall_ms=sums.wall_ms / sums.calls if sums.calls else None,
        cost_microusd=sums.cost_microusd,
        tokens=sums.tokens,
        unpriced_tokens=sums.unpriced_tokens,
        mean_score=sums.score_sum / sums.scored if sums.scored else None,
        recent=len(recent),
        recent_success_rate=_mean(float(row.ok) for row in recent),
        recent_wall_ms=_mean(row.wall_ms for row in recent),
        recent_p95_ms=_p95([row.wall_ms for row in recent]),
        recent_peak_bytes=max((row.peak_bytes for row in recent if row.peak_bytes is not None), default=None),
        recent_cost_microusd=_mean(row.cost_microusd for row in recent),
        recent_score=_mean(row.score for row in recent if row.score is not None),
    )


def take_start(tx: Transaction, tool_id: int, per_hour: int, now: int) -> int | None:
    """Note that the tool is about to be called, if it was started fewer than `per_hour` times within the last hour.

    Otherwise nothing is noted, and the answer is when it may be started again (ms). Of several callers at once each
    waits for the one before. What is older than an hour is deleted, so that the cost follows the limit, not history.
    """
    held = sa.select(tools.c.id).where(tools.c.id == tool_id).with_for_update(key_share=True)
    tx.connection.execute(held)
    mine = tool_starts.c.tool_id == tool_id
    tx.connection.execute(sa.delete(tool_starts).where(mine, tool_starts.c.at <= now - _HOUR_MS))
    query = sa.select(tool_starts.c.at).where(mine).order_by(tool_starts.c.at.desc())
    full = tx.connection.execute(query.offset(per_hour - 1).limit(1)).scalar()
    if full is not None:
        return int(full) + _HOUR_MS
    tx.connection.execute(sa.insert(tool_starts).values(tool_id=tool_id, at=now))
    return None


def _values(row: CallRow) -> dict[str, Any]:
    values = {column.name: getattr(row, column.name) for column in tool_calls.columns if column.name != "id"}
    return values | {"input": _small(row.input), "output": _small(row.output)}


def _small(value: Any) -> Any:
    return value if value is not None and len(to_json(value)) <= KEPT_BYTES else None


def _add_up(tx: Transaction, version_id: int, rows: Sequence[CallRow]) -> None:
    scores = [row.score for row in rows if row.score is not None]
    columns = tool_versions.c
    tx.connection.execute(
        sa.update(tool_versions)
        .where(columns.id == version_id)
        .values(
            calls=columns.calls + len(rows),
            failures=columns.failures + sum(not row.ok for row in rows),
            wall_ms=columns.wall_ms + sum(row.wall_ms for row in rows),
            cost_microusd=columns.cost_microusd + sum(row.cost_microusd for row in rows),
            tokens=columns.tokens + sum(row.tokens for row in rows),
            unpriced_tokens=columns.unpriced_tokens + sum(row.unpriced_tokens for row in rows),
            scored=columns.scored + len(scores),
            score_sum=columns.score_sum + sum(scores),
        )
    )


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _p95(values: list[float]) -> float | None:
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)] if values else None


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
