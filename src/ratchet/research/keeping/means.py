"""What the evaluator measured beside the score, over several measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean


def means(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number that is in all of them."""
    if len(measured) == 1:
        return dict(measured[0])
    every = set.intersection(*(set(each) for each in measured)) if measured else set()
    return {name: fmean(each[name] for each in measured) for name in sorted(every)}
