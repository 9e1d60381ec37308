"""The values of a decision: noise, the best there is, what was measured, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

from ratchet.judges.comparison import Look
from ratchet.judges.reports import Feedback
from ratchet.kernel import Misuse, TrialStatus


@dataclass(frozen=True, slots=True)
class Noise:
    """`sd` is the spread of single scores, `held_out_sd` that on the held-out split; `None` where it is not known.

    `repeatable` says that the same seed gave the same score again, so that all noise comes from the seed.
    """

    sd: float | None = None
    repeatable: bool = False
    held_out_sd: float | None = None


def means(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number that is in all of them."""
    if len(measured) == 1:
        return dict(measured[0])
    every = set.intersection(*(set(each) for each in measured)) if measured else set()
    return {name: fmean(each[name] for each in measured) for name in sorted(every)}


class Side(StrEnum):
    CHALLENGER = "challenger"
    CHAMPION = "champion"


class Phase(StrEnum):
    """Why something was measured: to see whether it is promising, whether it is the same again, in a round side by
    side, on the held-out split."""

    FIRST = "first"
    AGAIN = "again"
    ROUND = "round"
    HELD_OUT = "held_out"


class Gained(NamedTuple):
    """How much better than the baseline the best is, and between what that surely lies."""

    estimate: float = 0.0
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, slots=True)
class Champion:
    """The best so far. `samples` are the scores that its `score` is the mean of, measured with `seeds`.

    `gained` adds up the steps that led to it from the baseline.
    """

    number: int
    commit: str
    score: float
    samples: tuple[float, ...]
    seeds: tuple[int, ...] = ()
    held_out: float | None = None
    gained: Gained = field(default_factory=Gained)

    def __post_init__(self) -> None:
        if self.seeds and len(self.seeds) != len(self.samples):
            raise Misuse(f"the best has {len(self.samples)} scores with {len(self.seeds)} seeds")

    @classmethod
    def of(cls, number: int, commit: str, record: Mapping[str, Any]) -> Champion:
        """The champion that a baseline or a kept trial is, from its `record`."""
        return cls(
            number,
            commit,
            record["score"],
            tuple(record["samples"]),
            tuple(record["seeds"]),
            record["held_out"],
            Gained(*record.get("gained", ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenMeasurement:
    """One measurement of one side. Without a score the champion could not be measured, and `problem` says why."""

    side: Side
    phase: Phase
    commit: str
    seed: int
    score: float | None
    problem: str = ""
    measurements: Mapping[str, float] = field(default_factory=dict)
    wall_ms: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def held_out(self) -> bool:
        return self.phase is Phase.HELD_OUT


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How the new best did where no search looked. `p_value` is that of "worse by more than is tolerated"."""

    passed: bool
    score: float
    against: float
    gain: float
    rounds: int
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of a challenger, and why.

    `score` is the mean of `samples`, its scores that counted. `delta` is that less `against`, which is the champion's
    mean of the same rounds, or its stored score where there were none. The last look gives `p_value`, `low` and `high`.
    `estimate` is the gain, shrunk where it was kept for being high; `level` the chance of a false keep that was left to
    this decision, and `gained` what the best before it had gained.
    """

    commit: str
    status: TrialStatus
    score: float
    against: float
    delta: float
    compared_to: int
    reason: str
    test: str
    samples: tuple[float, ...]
    seeds: tuple[int, ...]
    looks: tuple[Look, ...] = ()
    held_out: HeldOut | None = None
    level: float | None = None
    estimate: float = 0.0
    gained: Gained = field(default_factory=Gained)
    taken: tuple[TakenMeasurement, ...] = ()
    feedback: Feedback = field(default_factory=Feedback)

    @property
    def kept(self) -> bool:
        return self.status is TrialStatus.KEEP

    @property
    def p_value(self) -> float | None:
        return self.looks[-1].p_value if self.looks else None

    @property
    def low(self) -> float | None:
        return self.looks[-1].low if self.looks else None

    @property
    def high(self) -> float | None:
        return self.looks[-1].high if self.looks else None

    @property
    def gained_now(self) -> Gained:
        """What the run has gained with it, if it is kept."""
        low = self.estimate if self.low is None else self.low
        high = self.estimate if self.high is None else self.high
        before = self.gained
        return Gained(before.estimate + self.estimate, before.low + low, before.high + high)

    @property
    def means(self) -> dict[str, float]:
        """The evaluator's other measurements of the challenger, over those that counted."""
        return means([each.measurements for each in _counted(self.taken, self.seeds)])

    def record(self) -> dict[str, Any]:
        """As JSON has it, short enough for a row. `Champion.of` reads it."""
        held_out = self.held_out
        return {
            "score": self.score,
            "samples": list(self.samples),
            "seeds": list(self.seeds),
            "against": self.against,
            "test": self.test,
            "p_value": self.p_value,
            "low": self.low,
            "high": self.high,
            "looks": len(self.looks),
            "level": self.level,
            "estimate": self.estimate,
            **({"gained": list(self.gained_now)} if self.kept else {}),
            "measured": len(self.taken),
            "held_out": None if held_out is None else held_out.score,
            "held_out_test": None if held_out is None else asdict(held_out),
            "means": self.means,
            **self.feedback.record(),
        }


def _counted(taken: Sequence[TakenMeasurement], seeds: Sequence[int]) -> list[TakenMeasurement]:
    """The challenger's measurements behind its score: those of the rounds or, where it came to none, the first."""
    sides = [each for each in taken if each.side is Side.CHALLENGER and not each.held_out]
    rounds = [each for each in sides if each.phase is Phase.ROUND and each.seed in seeds]
    return rounds or [each for each in sides if each.phase is Phase.FIRST]
