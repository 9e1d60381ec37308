"""Drawing a row of bars, one for each day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT = 900, 120
_WIDEST, _GAP = 28, 1
_LEAST = 2


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: int
    width: float
    height: int
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Bars:
    width: int
    height: int
    bars: Sequence[Bar]


def bars(values: Sequence[tuple[str, float]]) -> Bars:
    """From left to right, the highest over the whole height. What is above nothing can always be seen."""
    highest = max((value for _, value in values), default=0)
    space = min(_WIDEST, _WIDTH / max(1, len(values)))
    drawn = []
    for place, (name, value) in enumerate(values):
        height = max(_LEAST, round(value / highest * _HEIGHT)) if value > 0 else 0
        x, width = round(place * space, 2), round(max(1, space - _GAP), 2)
        drawn.append(Bar(x, _HEIGHT - height, width, height, name, value))
    return Bars(max(1, round(space * len(values))), _HEIGHT, drawn)
