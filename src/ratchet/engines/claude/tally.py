"""Counting what a session uses while it runs, and what its program says it used in the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from ratchet.kernel import Usage


class Tally:
    """The tokens of every request of a session.

    A request tells its input when it begins and its output when it ends. Helpers of the model have requests of their
    own at the same time, told apart by the call that started them.
    """

    def __init__(self) -> None:
        self._finished = Usage()
        self._open: dict[str | None, Usage] = {}

    def begin(self, helper: str | None, told: Any) -> None:
        self._finished += self._open.pop(helper, Usage())
        self._open[helper] = _tokens(told)

    def update(self, helper: str | None, told: Any) -> None:
        self._open[helper] = larger(self._open.get(helper, Usage()), _tokens(told))

    @property
    def total(self) -> Usage:
        return sum(self._open.values(), self._finished)


def larger(one: Usage, other: Usage) -> Usage:
    return Usage(**{f.name: max(getattr(one, f.name), getattr(other, f.name)) for f in fields(Usage)})


def billed(models: Iterable[Mapping[str, Any]], cost_usd: float | None) -> Usage:
    """What the program says that a session used, over all its models. Its own sum leaves some requests out."""
    total = Usage(cost_microusd=_microdollars(cost_usd))
    for each in models:
        read = _count(each.get("cacheReadInputTokens"))
        total += Usage(
            input_tokens=_count(each.get("inputTokens"))
            + _count(each.get("cacheCreationInputTokens"))
            + read,
            cached_tokens=read,
            output_tokens=_count(each.get("outputTokens")),
        )
    return total


def _tokens(told: Any) -> Usage:
    if not isinstance(told, Mapping):
        return Usage()
    read = _count(told.get("cache_read_input_tokens"))
    return Usage(
        input_tokens=_count(told.get("input_tokens"))
        + _count(told.get("cache_creation_input_tokens"))
        + read,
        cached_tokens=read,
        output_tokens=_count(told.get("output_tokens")),
    )


def _count(value: Any) -> int:
    """A number as an endpoint told it, which may be anything."""
    return max(0, value) if isinstance(value, int) else 0


def _microdollars(dollars: float | None) -> int:
    return round(dollars * 1_000_000) if dollars and math.isfinite(dollars) and dollars > 0 else 0
