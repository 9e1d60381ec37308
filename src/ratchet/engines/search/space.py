"""All constants of a program as one space, and its points."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.engines.search.constants import Constant
from ratchet.engines.search.dimension import Line, Options, Steps, dimension
from ratchet.kernel import Misuse

_MOST = 100


@dataclass(frozen=True, slots=True)
class Point:
    """The places of lines, then of steps, as they were drawn, also out of bounds; and the number of each option."""

    places: tuple[float, ...]
    options: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Space:
    dimensions: tuple[Line | Steps | Options, ...]

    @classmethod
    def of(cls, constants: Iterable[Constant]) -> Space:
        """In the order of the program. Raises `Misuse` for too many."""
        dimensions = tuple(dimension(each) for each in constants)
        if len(dimensions) > _MOST:
            raise Misuse(
                f"{len(dimensions)} constants are too many to be searched at once; at most {_MOST} are",
                hint="name fewer files, or declare fewer constants",
            )
        return cls(dimensions)

    @property
    def lines(self) -> list[Line]:
        return [each for each in self.dimensions if isinstance(each, Line)]

    @property
    def steps(self) -> list[Steps]:
        return [each for each in self.dimensions if isinstance(each, Steps)]

    @property
    def options(self) -> list[Options]:
        return [each for each in self.dimensions if isinstance(each, Options)]

    @property
    def present(self) -> Point:
        """Where the program is now."""
        places = [each.present for each in self.lines] + [each.present for each in self.steps]
        return Point(tuple(places), tuple(each.present for each in self.options))

    @property
    def signature(self) -> str:
        """Names the space: in another one, what was learned here is worth nothing. Present values do not matter."""
        constants = [each.constant for each in self.dimensions]
        told = [(each.path, each.name, repr(each.domain)) for each in constants]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

    def literals(self, point: Point) -> list[str]:
        """What each constant becomes, in the order of the program."""
        lines = iter(point.places)
        steps = iter(point.places[len(self.lines) :])
        options = iter(point.options)
        return [
            each.literal(next(lines))
            if isinstance(each, Line)
            else each.literal(next(steps))
            if isinstance(each, Steps)
            else each.literal(next(options))
            for each in self.dimensions
        ]

    def point(self, data: Mapping[str, Any]) -> Point:
        """The point that `data` holds. Raises `ValueError` for one that is not of this space."""
        places = tuple(float(place) for place in data["places"])
        options = tuple(int(option) for option in data["options"])
        counts = [len(each.literals) for each in self.options]
        if len(places) != len(self.lines) + len(self.steps) or len(options) != len(counts):
            raise ValueError("it has another number of constants")
        if not all(math.isfinite(place) and abs(place) < 1e6 for place in places):
            raise ValueError("it lies out of all bounds")
        if not all(0 <= option < count for option, count in zip(options, counts, strict=True)):
            raise ValueError("it has an option that does not exist")
        return Point(places, options)
