"""What work costs, and how much of it is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import add, attrgetter, sub


class BudgetPolicy(StrEnum):
    STRICT = "strict"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Usage:
    """Real consumption. Money is whole millionths of a dollar, so that sums are exact.

    `unpriced_tokens` are those of the tokens whose price nobody knows: what they cost is not in `cost_microusd`.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0
    wall_ms: int = 0
    trials: int = 0
    unpriced_tokens: int = 0

    def __post_init__(self) -> None:
        amounts = _amounts(self)
        # Told at a glance, since there are many of these; only what looks wrong is looked at one by one.
        if set(map(type, amounts)) == _WHOLE and min(amounts) >= 0:
            return
        for name, value in zip(MEASURES, amounts, strict=True):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"usage {name} must be a whole number of at least 0, not {value!r}")

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, _amounts(self), _amounts(other)))

    def largest(self, other: Usage) -> Usage:
        """The larger of both, measure by measure."""
        return Usage(*map(max, _amounts(self), _amounts(other)))

    def less(self, part: Usage) -> Usage:
        """What is left without `part`; never below zero."""
        return Usage(*(max(0, left) for left in map(sub, _amounts(self), _amounts(part))))

    def measures(self) -> dict[str, int]:
        """Each measure by its name."""
        return dict(zip(MEASURES, _amounts(self), strict=True))

    @property
    def tokens(self) -> int:
        """All tokens in and out. Cached input is part of the input and not counted twice."""
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd(self) -> float:
        """What is known of the cost."""
        return self.cost_microusd / 1_000_000

    @property
    def whole_cost_usd(self) -> float | None:
        """The cost, or nothing when a part of it is unknown: that is never told as a cost of zero."""
        return None if self.unpriced_tokens else self.cost_usd

    @property
    def wall_seconds(self) -> float:
        return self.wall_ms / 1000


MEASURES = tuple(each.name for each in fields(Usage))
_amounts: Callable[[Usage], tuple[int, ...]] = attrgetter(*MEASURES)
_WHOLE = {int}


def dollars(amount: float) -> str:
    """An amount of money as people read it. One that is not nothing is never shown as nothing."""
    if 0 < amount < 0.0001:
        return "under $0.0001"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that may be used; `None` is no limit."""

    tokens: int | None = None
    cost_usd: float | None = None
    wall_seconds: float | None = None
    trials: int | None = None

    def exceeded_by(self, usage: Usage) -> tuple[str, float, float] | None:
        """The first measure that is over its limit, as (measure, used, limit)."""
        return self._first(usage, reached=False)

    def reached_by(self, usage: Usage) -> tuple[str, float, float] | None:
        """The first measure with nothing left, as (measure, used, limit)."""
        return self._first(usage, reached=True)

    def less(self, usage: Usage) -> Limits:
        """What is left of these limits after `usage`; never below zero."""
        left: dict[str, float | int | None] = {}
        for each in fields(self):
            limit = getattr(self, each.name)
            left[each.name] = None if limit is None else max(0, limit - getattr(usage, each.name))
        return Limits(**left)  # type: ignore[arg-type]

    def tightest(self, other: Limits) -> Limits:
        """The smaller of both limits, measure by measure."""
        if other == Limits():
            return self
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Limits(
            **{name: min((x for x in pair if x is not None), default=None) for name, pair in pairs.items()}
        )

    def _first(self, usage: Usage, *, reached: bool) -> tuple[str, float, float] | None:
        for each in fields(self):
            limit = getattr(self, each.name)
            used = getattr(usage, each.name)
            if limit is not None and (used >= limit if reached else used > limit):
                return each.name, float(used), float(limit)
        return None
