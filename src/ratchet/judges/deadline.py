"""The time an attempt has left, kept apart from the time that a judge grants a candidate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ratchet.sandbox import Bounds


class OutOfTime(Exception):
    """The attempt's own time ran out before the candidate had the time that it was promised."""

    def __init__(self) -> None:
        super().__init__("the attempt's time ran out before the candidate was judged")


class Deadline:
    """Counts down from `seconds`; `None` never ends."""

    def __init__(self, seconds: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    @property
    def left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - self._clock())

    def cut(self, bounds: Bounds) -> Bounds:
        """`bounds`, made shorter when less time is left. Raises `OutOfTime` when none is."""
        left = self.left
        if left is None or left >= bounds.wall_seconds:
            return bounds
        if left == 0.0:
            raise OutOfTime
        return replace(bounds, wall_seconds=left)
