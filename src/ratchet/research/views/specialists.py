"""What each specialist brought, what it cost, and what it expected against what was measured."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ratchet.kernel import TrialStatus, Usage
from ratchet.ledger import usage as spending
from ratchet.ledger.research import list_specialists
from ratchet.ledger.trial_pages import Point, latest_points, tallies
from ratchet.operations import filled
from ratchet.research.views.text import (
    NOTHING,
    ResearchView,
    cost_of,
    duration,
    finite,
    json_text,
    money,
    one_line,
    signed,
)

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trials import Trial


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    tokens: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None
    wall_seconds: float

    @classmethod
    def of(cls, usage: Usage, /, **more: Any) -> Self:
        return filled(cls, usage, cost_usd=usage.whole_cost_usd, **more)


@dataclass(frozen=True, slots=True)
class YieldAnswer(UsageAnswer):
    """`failures` are failed sessions in a row, and `problem` is what the last of them failed of."""

    specialist: str
    sessions: int
    trials: int
    keeps: int
    keeps_per_trial: float | None
    by_status: dict[str, int]
    failures: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class SpecialistCost(UsageAnswer):
    specialist: str


@dataclass(frozen=True, slots=True)
class CostAnswer(UsageAnswer):
    cost_usd_per_trial: float | None
    cost_usd_per_keep: float | None
    specialists: list[SpecialistCost]


@dataclass(frozen=True, slots=True)
class CalibratedAnswer:
    specialist: str
    trials: int
    mean_expected_delta: float
    mean_actual_delta: float
    right_direction: float


@dataclass(frozen=True, slots=True)
class CalibrationAnswer:
    trials: int
    specialists: list[CalibratedAnswer]


@dataclass(frozen=True, slots=True)
class CostView(ResearchView):
    total: Usage
    specialists: tuple[SpecialistYield, ...]

    @property
    def trials(self) -> int:
        return sum(each.trials for each in self.specialists)

    @property
    def keeps(self) -> int:
        return sum(each.keeps for each in self.specialists)

    def answer(self) -> CostAnswer:
        return CostAnswer.of(
            self.total,
            cost_usd_per_trial=_share(self.total, self.trials),
            cost_usd_per_keep=_share(self.total, self.keeps),
            specialists=[
                SpecialistCost.of(each.usage, specialist=json_text(each.specialist))
                for each in self.specialists
            ],
        )

    def table(self, limit: int = 100) -> list[list[str]]:
        parts = [(each.specialist, each.usage, each.trials, each.keeps) for each in self.specialists]
        rows = [_row(*each) for each in [("all", self.total, self.trials, self.keeps), *parts]]
        return [["who", "tokens", "cost", "per trial", "per keep", "time"], *rows]


def cost(tx: Transaction, run_id: int) -> CostView:
    return CostView(spending.total(tx, "run", run_id), yields(tx, run_id).rows)


def _share(usage: Usage, number: int) -> float | None:
    known = usage.whole_cost_usd
    return known / number if number and known is not None else None


def _row(who: str, usage: Usage, trials: int, keeps: int) -> list[str]:
    return [
        one_line(who, 40),
        f"{usage.tokens:,}",
        cost_of(usage),
        *(
            money(usage.cost_microusd / number) if number and not usage.unpriced_tokens else NOTHING
            for number in (trials, keeps)
        ),
        duration(usage.wall_seconds),
    ]


@dataclass(frozen=True, slots=True)
class SpecialistYield:
    """`failures` are failed sessions in a row and `problem` is what the last of them failed of."""

    specialist: str
    sessions: int = 0
    failures: int = 0
    problem: str | None = None
    usage: Usage = field(default_factory=Usage)
    by_status: Mapping[TrialStatus, int] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        """Those that count: an infrastructure error is not a trial."""
        return sum(count for status, count in self.by_status.items() if status.tried)

    @property
    def keeps(self) -> int:
        return self.by_status.get(TrialStatus.KEEP, 0)

    @property
    def keeps_per_trial(self) -> float | None:
        return self.keeps / self.trials if self.trials else None

    def answer(self) -> YieldAnswer:
        own = {
            name: getattr(self, name)
            for name in ("sessions", "trials", "keeps", "keeps_per_trial", "failures")
        }
        return YieldAnswer.of(
            self.usage,
            specialist=json_text(self.specialist),
            by_status={str(status): count for status, count in self.by_status.items()},
            problem=json_text(self.problem),
            **own,
        )


@dataclass(frozen=True, slots=True)
class Yields(ResearchView):
    none = "No session has ended yet."
    rows: tuple[SpecialistYield, ...]

    def answer(self) -> list[YieldAnswer]:
        return [each.answer() for each in self.rows]

    def table(self, limit: int = 80) -> list[list[str]]:
        head = ["specialist", "sessions", "trials", "keeps", "per trial", "tokens", "cost", "time", "problem"]
        return [head, *(_cells(each, limit) for each in self.rows)]


def _cells(row: SpecialistYield, limit: int) -> list[str]:
    share = NOTHING if row.keeps_per_trial is None else f"{row.keeps_per_trial:.3f}"
    counts = [f"{count:,}" for count in (row.sessions, row.trials, row.keeps)]
    used = [f"{row.usage.tokens:,}", cost_of(row.usage), duration(row.usage.wall_seconds)]
    problem = f"{row.failures}× {one_line(row.problem or '', limit)}" if row.failures else ""
    return [one_line(row.specialist, 40), *counts, share, *used, problem]


def yields(tx: Transaction, run_id: int) -> Yields:
    """Every specialist that has had a session or a trial. The baseline belongs to no specialist."""
    counted = tallies(tx, run_id)
    for counts in counted.values():
        counts.pop(TrialStatus.BASELINE, None)
    rows = {name: SpecialistYield(name, by_status=counts) for name, counts in counted.items() if counts}
    for each in list_specialists(tx, run_id):
        rows[each.name] = SpecialistYield(
            each.name, each.sessions, each.failures, each.problem, each.usage, counted.get(each.name, {})
        )
    return Yields(tuple(rows[name] for name in sorted(rows)))


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
class SpecialistCalibration:
    """The means over `trials` that said what they expected and have a score that was compared with the best."""

    specialist: str
    trials: int
    expected: float
    actual: float
    right_way: int

    def answer(self) -> CalibratedAnswer:
        share = self.right_way / self.trials
        return CalibratedAnswer(
            json_text(self.specialist) or "", self.trials, self.expected, self.actual, share
        )

    def cells(self, limit: int) -> list[str]:
        share = f"{self.right_way} of {self.trials}"
        means = [signed(self.expected), signed(self.actual)]
        return [one_line(self.specialist, min(limit, 40)), f"{self.trials}", *means, share]


@dataclass(frozen=True, slots=True)
class CalibrationView(ResearchView):
    """Over the newest trials of the run: `trials` of them."""

    none = "No trial with an expectation has a score yet."
    trials: int
    rows: tuple[SpecialistCalibration, ...]

    def of(self, specialist: str) -> SpecialistCalibration | None:
        return next((each for each in self.rows if each.specialist == specialist), None)

    def answer(self) -> CalibrationAnswer:
        return CalibrationAnswer(self.trials, [each.answer() for each in self.rows])

    def table(self, limit: int = 40) -> list[list[str]]:
        head = ["specialist", "trials", "mean Δ expected", "mean Δ measured", "moved as expected"]
        return [head, *(each.cells(limit) for each in self.rows)]


def calibration(tx: Transaction, run_id: int) -> CalibrationView:
    points = latest_points(tx, run_id, limit=_LATEST)
    pairs: dict[str, list[Expectation]] = defaultdict(list)
    for point in points:
        pair = expectation(point)
        if pair is not None:
            pairs[point.specialist].append(pair)
    return CalibrationView(len(points), tuple(_calibrated(name, pairs[name]) for name in sorted(pairs)))


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


def expectations_of(specialist: str, pairs: Sequence[Expectation]) -> SpecialistCalibration | None:
    """The same for one specialist, from what is at hand."""
    return _calibrated(specialist, pairs) if pairs else None


def expectation(point: Point | Trial) -> Expectation | None:
    """What was expected of a trial and what came of it; nothing where one of them is not known."""
    if point.status is None or not point.status.valid or point.delta is None or point.score is None:
        return None
    expected = expected_delta(point.expected_delta, point.score - point.delta)
    return None if expected is None else (expected, point.delta)


def _calibrated(specialist: str, pairs: Sequence[Expectation]) -> SpecialistCalibration:
    return SpecialistCalibration(
        specialist=specialist,
        trials=len(pairs),
        expected=statistics.fmean(expected for expected, _ in pairs),
        actual=statistics.fmean(actual for _, actual in pairs),
        right_way=sum(expected * actual > 0 for expected, actual in pairs),
    )
