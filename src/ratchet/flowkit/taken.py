"""What all that a step holds has taken together: the items of a list, or the steps of a workflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .execution import StepRecord

_ADDED = ("cpu_ms", "cost_microusd", "tokens")
_MOST = "peak_bytes"
SIMULATED = "simulated"
WITHIN = "within"


def taken_within(records: Iterable[StepRecord]) -> dict[str, Any]:
    """The metrics of a step that calls nothing itself. What came from the cache took nothing, but is as simulated as
    it was."""
    total: dict[str, Any] = {}
    for record in records:
        for taken in (record.metrics, record.metrics.get(WITHIN, {})):
            if not record.cached:
                _add(total, taken)
            if taken.get(SIMULATED):
                total[SIMULATED] = True
    return {WITHIN: total} if total else {}


def _add(total: dict[str, Any], taken: Mapping[str, Any]) -> None:
    for name in _ADDED:
        if taken.get(name):
            total[name] = total.get(name, 0) + taken[name]
    if taken.get(_MOST):
        total[_MOST] = max(total.get(_MOST, 0), taken[_MOST])
