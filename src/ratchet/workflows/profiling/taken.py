"""What the steps of one run took, item by item and step inside step added up to the steps of the workflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.kernel import StepStatus
from ratchet.ledger import Step

_ENDED = (StepStatus.COMPLETED, StepStatus.FAILED)


@dataclass(slots=True)
class Taken:
    """One step of the workflow in one run. Times are milliseconds since 1970."""

    began: int | None = None
    ended: int | None = None
    wall_ms: float = 0.0
    cpu_ms: float | None = None
    peak_bytes: int | None = None
    cost_microusd: float = 0.0
    tokens: float = 0.0
    unpriced_tokens: float = 0.0
    calls: int = 0
    cached: int = 0
    failed: int = 0
    tries: int = 0
    names: set[str] = field(default_factory=set)

    @property
    def span_ms(self) -> float:
        """How long it took. A step of one call took what its tool did: rows are written in batches, a little later."""
        if self.calls == 1 and len(self.names) == 1:
            return self.wall_ms
        if self.began is None or self.ended is None:
            return self.wall_ms
        return max(self.wall_ms if len(self.names) == 1 else 0.0, float(self.ended - self.began))


def add_up(rows: Iterable[Step]) -> dict[str, Taken]:
    """By step of the workflow. Steps that never ran are not there."""
    found: dict[str, Taken] = {}
    for row in rows:
        if row.status not in _ENDED:
            continue
        taken = found.setdefault(top_step(row.name), Taken())
        taken.names.add(row.name)
        taken.began = row.created_at if taken.began is None else min(taken.began, row.created_at)
        if row.ended_at is not None:
            taken.ended = row.ended_at if taken.ended is None else max(taken.ended, row.ended_at)
        _add_call(taken, row, row.result or {})
    return found


def _add_call(taken: Taken, row: Step, result: Mapping[str, Any]) -> None:
    metrics: Mapping[str, Any] = result.get("metrics") or {}
    if "wall_ms" not in metrics and not result.get("cached"):
        # A step that holds others calls nothing itself.
        taken.failed += int(row.status is StepStatus.FAILED and not taken.calls)
        return
    taken.calls += 1
    taken.failed += int(row.status is StepStatus.FAILED)
    taken.tries += int(result.get("tries") or 1)
    if result.get("cached"):
        # Its metrics are those of the call that was made long ago.
        taken.cached += 1
        return
    taken.wall_ms += float(metrics.get("wall_ms") or 0.0)
    taken.cost_microusd += float(metrics.get("cost_microusd") or 0)
    tokens = float(metrics.get("tokens") or 0)
    taken.tokens += tokens
    # Older metrics do not say: tokens that cost nothing had no price.
    taken.unpriced_tokens += float(
        metrics.get("unpriced_tokens", 0 if metrics.get("cost_microusd") else tokens)
    )
    if metrics.get("cpu_ms") is not None:
        taken.cpu_ms = (taken.cpu_ms or 0.0) + float(metrics["cpu_ms"])
    if metrics.get("peak_bytes") is not None:
        taken.peak_bytes = max(taken.peak_bytes or 0, int(metrics["peak_bytes"]))


def top_step(name: str) -> str:
    """The step of the workflow that a row belongs to: `report` for `report/draft[3]`."""
    return name.partition("/")[0].partition("[")[0]
