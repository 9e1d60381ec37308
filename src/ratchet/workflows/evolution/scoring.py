"""What one call of a tool was worth, from 0 to 1, as it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

# However slow or large a call that succeeded was, it is worth more than one that failed.
_LEAST_FACTOR = 0.5


class Measured(Protocol):
    """The numbers of a call on record."""

    @property
    def ok(self) -> bool: ...

    @property
    def wall_ms(self) -> float: ...

    @property
    def peak_bytes(self) -> int | None: ...

    @property
    def score(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Targets:
    """What a tool should stay within. One that names no target is not held to any."""

    wall_ms: float | None = None
    peak_bytes: int | None = None

    @classmethod
    def of(cls, constraints: Mapping[str, Any]) -> Targets:
        """The targets among a tool's constraints: `target_ms` and `target_memory_mb`."""
        wall, memory = constraints.get("target_ms"), constraints.get("target_memory_mb")
        return cls(None if not wall else float(wall), None if not memory else int(memory * 2**20))


def call_score(call: Measured, targets: Targets) -> float:
    """The score that the call was given, or else what its numbers say: nothing for a failure, and less than all for
    one that took longer or more memory than the tool's targets."""
    if call.score is not None:
        return min(1.0, max(0.0, call.score))
    if not call.ok:
        return 0.0
    return _factor(targets.wall_ms, call.wall_ms) * _factor(targets.peak_bytes, call.peak_bytes)


def _factor(target: float | None, taken: float | None) -> float:
    if target is None or not taken:
        return 1.0
    return min(1.0, max(_LEAST_FACTOR, target / taken))
