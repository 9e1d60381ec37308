"""What specialists expected of their trials against what came of them."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.ledger.trial_pages import Point, latest_points
from ratchet.research.views.words import cell, finite, json_text, signed, table

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*%?\s*(?:to|\.\.+|…|–|—)\s*({_NUMBER})\s*(%?)", re.IGNORECASE)
_ONE = re.compile(rf"({_NUMBER})\s*(%?)", re.IGNORECASE)
# A dash that no number stands before is a sign, however it was typed.
_SIGN = re.compile(r"(?<![\d.])\s*[\u2212–—]\s*(?=[\d.])")
_LOOKED_AT = 80
_LATEST = 100
Expectation = tuple[float, float]
"""The change of the score that was expected, and the one that was measured."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The means over `trials` that said what they expected and have a score that was compared with the best."""

    specialist: str
    trials: int
    expected: float
    actual: float
    right_way: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "specialist": json_text(self.specialist),
            "trials": self.trials,
            "mean_expected_delta": self.expected,
            "mean_actual_delta": self.actual,
            "right_direction": self.right_way / self.trials,
        }


@dataclass(frozen=True, slots=True)
class Calibration:
    """Over the newest trials of the run: `looked_at` of them."""

    looked_at: int
    rows: tuple[Calibrated, ...]

    def of(self, specialist: str) -> Calibrated | None:
        return next((each for each in self.rows if each.specialist == specialist), None)

    def to_dict(self) -> dict[str, Any]:
        return {"looked_at": self.looked_at, "specialists": [each.to_dict() for each in self.rows]}

    def to_markdown(self) -> str:
        if not self.rows:
            return "No trial with an expectation has a score yet."
        columns = ("specialist", "trials", "mean Δ expected", "mean Δ measured", "moved as expected")
        return "\n".join(table(columns, [_cells(each) for each in self.rows]))


def calibration(tx: Transaction, run_id: int) -> Calibration:
    points = latest_points(tx, run_id, limit=_LATEST)
    pairs: dict[str, list[Expectation]] = defaultdict(list)
    for point in points:
        pair = expectation(point)
        if pair is not None:
            pairs[point.specialist].append(pair)
    return Calibration(len(points), tuple(_calibrated(name, pairs[name]) for name in sorted(pairs)))


def expected_delta(text: str, compared_to: float | None = None) -> float | None:
    """The number that free text such as `-0.6`, `~ -0.3 to -0.5` or `+2%` names; of a range its middle.

    A share is one of `compared_to`, and means nothing without it.
    """
    plain = _SIGN.sub(" -", text[:_LOOKED_AT])
    found = _RANGE.search(plain)
    if found is not None:
        ends, percent = (finite(float(found[1])), finite(float(found[2]))), found[3]
        value = None if ends[0] is None or ends[1] is None else (ends[0] + ends[1]) / 2
    else:
        one = _ONE.search(plain)
        if one is None:
            return None
        value, percent = finite(float(one[1])), one[2]
    if value is None or not percent:
        return value
    return None if compared_to is None else finite(value / 100 * abs(compared_to))


def expectations_of(specialist: str, pairs: Sequence[Expectation]) -> Calibrated | None:
    """The same for one specialist, from what is at hand."""
    return _calibrated(specialist, pairs) if pairs else None


def expectation(point: Point | Trial) -> Expectation | None:
    """What was expected of a trial and what came of it; nothing where one of them is not known."""
    if point.status is None or not point.status.valid or point.delta is None or point.score is None:
        return None
    expected = expected_delta(point.expected_delta, point.score - point.delta)
    return None if expected is None else (expected, point.delta)


def _calibrated(specialist: str, pairs: Sequence[Expectation]) -> Calibrated:
    return Calibrated(
        specialist=specialist,
        trials=len(pairs),
        expected=statistics.fmean(expected for expected, _ in pairs),
        actual=statistics.fmean(actual for _, actual in pairs),
        right_way=sum(expected * actual > 0 for expected, actual in pairs),
    )


def _cells(row: Calibrated) -> list[str]:
    share = f"{row.right_way} of {row.trials}"
    return [cell(row.specialist, 40), f"{row.trials}", signed(row.expected), signed(row.actual), share]
