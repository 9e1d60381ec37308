"""The versions of a tool and how each fares; old ones that are neither the best nor the newest are retired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.ledger import Transaction
from ratchet.ledger.tool_calls import CallStats
from ratchet.ledger.tools import ToolRow, VersionRow, VersionStatus, call_stats, list_versions

_MOST = 50
# With more than so many, only the best few and the newest are worth going back to.
_MANY, _BEST = 10, 3


@dataclass(frozen=True, slots=True)
class Standing:
    """A version with what its calls came to. A `retired` one is kept for ever, and is listed for the record only."""

    version: VersionRow
    stats: CallStats
    current: bool
    retired: bool


def list_standings(tx: Transaction, tool: ToolRow) -> list[Standing]:
    """The last versions of a tool that are or were in use, newest first."""
    rows = [row for row in list_versions(tx, tool.id, limit=_MOST) if row.status is VersionStatus.PROMOTED]
    stats = {row.id: call_stats(tx, row.id) for row in rows}
    kept = _worth_keeping(rows, stats) | {tool.current_id, tool.pinned_id}
    return [
        Standing(row, stats[row.id], row.id == tool.current_id, retired=row.id not in kept) for row in rows
    ]


def _worth_keeping(rows: Sequence[VersionRow], stats: dict[int, CallStats]) -> set[int | None]:
    if len(rows) <= _MANY:
        return {row.id for row in rows}
    best = sorted(rows, key=lambda row: _quality(stats[row.id]), reverse=True)[:_BEST]
    return {rows[0].id, *(row.id for row in best)}


def _quality(stats: CallStats) -> tuple[float, float]:
    """What somebody said of its calls, or else how many went well; then the faster one."""
    said = stats.mean_score if stats.mean_score is not None else stats.success_rate
    return (said or 0.0, -(stats.mean_wall_ms or 0.0))
