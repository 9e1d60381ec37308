"""One constant as the algorithm sees it: a line, a row of steps, or a set of options."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ratchet.engines.search.constants import Constant
from ratchet.engines.search.declaration import Choice, Range

# More whole numbers than this are searched as if they were a line, and rounded.
_FEW = 64


@dataclass(frozen=True, slots=True)
class Line:
    """Any number of a range, as a place from 0 to 1."""

    constant: Constant
    domain: Range

    @property
    def present(self) -> float:
        assert isinstance(self.constant.present, int | float)
        return _place(self.domain, self.constant.present)

    def literal(self, place: float) -> str:
        """The number at this place as it is written: six digits are finer than any measurement."""
        low, high = self.domain.low, self.domain.high
        place = min(max(place, 0.0), 1.0)
        value = low * (high / low) ** place if self.domain.log else low + (high - low) * place
        if self.domain.whole:
            return repr(min(max(round(value), int(low)), int(high)))
        return repr(min(max(float(f"{value:.6g}"), float(low)), float(high)))


@dataclass(frozen=True, slots=True)
class Steps:
    """A few whole numbers in their order, each at its place from 0 to 1."""

    constant: Constant
    domain: Range

    @property
    def numbers(self) -> range:
        return range(int(self.domain.low), int(self.domain.high) + 1)

    @property
    def grid(self) -> list[float]:
        return [_place(self.domain, number) for number in self.numbers]

    @property
    def present(self) -> float:
        assert isinstance(self.constant.present, int)
        return _place(self.domain, self.constant.present)

    def literal(self, place: float) -> str:
        return repr(min(self.numbers, key=lambda number: abs(_place(self.domain, number) - place)))


@dataclass(frozen=True, slots=True)
class Options:
    """A few literals without an order, by number."""

    constant: Constant
    literals: tuple[str, ...]
    present: int

    def literal(self, index: int) -> str:
        return self.literals[index]


def dimension(constant: Constant) -> Line | Steps | Options:
    domain = constant.domain
    if isinstance(domain, Choice):
        return Options(constant, domain.options, domain.index(constant.present) or 0)
    count = int(domain.high) - int(domain.low) + 1
    if not domain.whole or count > _FEW:
        return Line(constant, domain)
    if count == 2:
        # Between two there is no order to follow.
        low, high = int(domain.low), int(domain.high)
        return Options(constant, (repr(low), repr(high)), int(constant.present == high))
    return Steps(constant, domain)


def _place(domain: Range, value: float) -> float:
    if domain.log:
        return math.log(value / domain.low) / math.log(domain.high / domain.low)
    return (value - domain.low) / (domain.high - domain.low)
