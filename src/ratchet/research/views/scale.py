"""From numbers to places on a plot, with round numbers at the axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps `low` to `start` and `high` to `end`; what lies outside stays at the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        # Halved, so that the widest range there is does not overflow.
        width = self.high / 2 - self.low / 2
        share = (value / 2 - self.low / 2) / width if width else 0.5
        # Not by `min` and `max`: a plot asks thousands of times.
        inside = 0.0 if share < 0.0 else 1.0 if share > 1.0 else share
        return self.start + inside * (self.end - self.start)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers from `low` to `high`."""
        width = self.high - self.low
        if not math.isfinite(width) or width <= 0:
            return [self.low]
        rough = width / about
        power = 10.0 ** math.floor(math.log10(rough)) if rough > 1e-300 else rough
        step = next(power * each for each in (1, 2, 5, 10, 20) if power * each >= rough)
        first = math.ceil(self.low / step)
        return [at * step for at in range(first, first + about * 2) if at * step <= self.high]


def shown_range(always: Sequence[float], usual: Sequence[float]) -> tuple[float, float]:
    """A range with all of `always` in it and most of `usual`: a few wild values must not flatten the rest."""
    ordered = sorted(usual)
    cut = len(ordered) // 20
    inner = ordered[cut : len(ordered) - cut]
    values = [*always, *inner]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = (high / 2 - low / 2) * 0.12 or abs(high) * 0.05 or 1.0
    return low - room, high + room
