"""Whether a candidate's scores are better than the incumbent's, beyond noise."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from enum import StrEnum

from ratchet.judges.reports import finite
from ratchet.judges.student_t import lower_tail
from ratchet.kernel import Direction, Misuse


class Decision(StrEnum):
    BETTER = "better"
    NOT_BETTER = "not better"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Incumbent:
    """What the candidate must beat: the scores that were measured when it was kept."""

    commit: str
    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples or any(finite(each) is None for each in self.samples):
            raise Misuse(f"the incumbent {self.commit} needs at least one score, all of them finite")


@dataclass(frozen=True, slots=True)
class Rule:
    """What counts as better.

    Better by more than `min_effect`, with a chance of at most `alpha` to say so of a candidate that is not. At least
    `least` measurements are taken, and more while it is unclear, up to `most`. An evaluator that is said to be
    `deterministic` is asked once. Measurement number i runs with the seed `seed` + i, the same for every candidate.
    """

    direction: Direction = Direction.MAX
    min_effect: float = 0.0
    alpha: float = 0.05
    least: int = 3
    most: int = 10
    deterministic: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.min_effect) and self.min_effect >= 0):
            raise Misuse(f"min_effect must be 0 or more, not {self.min_effect!r}")
        if not 0 < self.alpha < 0.5:
            raise Misuse(f"alpha must lie between 0 and 0.5, not {self.alpha!r}")
        if not 2 <= self.least <= self.most:
            raise Misuse(
                f"a noisy score needs 2 or more measurements, not {self.least} to {self.most}",
                hint="say deterministic=True if one is enough",
            )

    @property
    def first(self) -> int:
        return 1 if self.deterministic else self.least

    @property
    def last(self) -> int:
        return 1 if self.deterministic else self.most


@dataclass(frozen=True, slots=True)
class Comparison:
    """`effect` is how much better the mean is, below zero for worse. `p_value` is the chance to see this much, or
    more, from a candidate that is not better by more than the smallest effect that counts."""

    decision: Decision
    mean: float
    sd: float
    n: int
    effect: float | None = None
    p_value: float | None = None
    incumbent_mean: float | None = None

    def measurements(self) -> dict[str, float]:
        numbers = {
            "mean": self.mean,
            "sd": self.sd,
            "n": self.n,
            "effect": self.effect,
            "p_value": self.p_value,
            "incumbent_mean": self.incumbent_mean,
        }
        return {name: float(value) for name, value in numbers.items() if value is not None}


def compare(samples: tuple[float, ...], incumbent: Incumbent | None, rule: Rule) -> Comparison:
    """Look at the scores so far, which are numbers as `finite` lets through."""
    mean, sd = spread(samples)
    n = len(samples)
    if incumbent is None:
        # Nothing to beat. All that come after are held against these scores, so they had better be many.
        enough = n >= rule.last or (n >= rule.first and sd == 0.0)
        return Comparison(Decision.BETTER if enough else Decision.UNCLEAR, mean, sd, n)
    other, other_sd = spread(incumbent.samples)
    effect = rule.direction.gain(mean, other)
    if n < rule.first:
        return Comparison(Decision.UNCLEAR, mean, sd, n, effect, None, other)
    gain = effect - rule.min_effect
    p_value = _chance(gain, sd, n, other_sd, len(incumbent.samples))
    if p_value <= _per_look(rule):
        decision = Decision.BETTER
    elif gain <= 0 or n >= rule.last:
        # Most candidates are no better, and measuring costs: hope ends as soon as the mean is not better.
        decision = Decision.NOT_BETTER
    else:
        decision = Decision.UNCLEAR
    return Comparison(decision, mean, sd, n, effect, p_value, other)


def _per_look(rule: Rule) -> float:
    """Whoever looks after each measurement and stops at the first good one is fooled more often than `alpha`: the
    chance is shared out among the looks. Stopping early for a bad one can only lose a good candidate."""
    return rule.alpha / (rule.last - rule.first + 1)


def _chance(gain: float, sd: float, n: int, other_sd: float, other_n: int) -> float:
    """The p-value of "better", by the t-test for means with unequal spread (Welch)."""
    scale = max(sd, other_sd)
    if scale == 0.0:
        # No noise was seen, so the difference is what it is. A tie is not better.
        return 0.0 if gain > 0 else 1.0
    # In units of the larger spread, which is raised to the fourth power.
    variance, other_variance = (sd / scale) ** 2, (other_sd / scale) ** 2
    if n == 1 or other_n == 1:
        # The spread of a single score is not known; it is taken to be that of the other side (Student).
        freedom = float(n + other_n - 2)
        pooled = ((n - 1) * variance + (other_n - 1) * other_variance) / freedom
        error = pooled / n + pooled / other_n
    else:
        shares = variance / n, other_variance / other_n
        error = sum(shares)
        freedom = error**2 / (shares[0] ** 2 / (n - 1) + shares[1] ** 2 / (other_n - 1))
    return lower_tail(freedom, -gain / scale / math.sqrt(error))


def average(samples: tuple[float, ...]) -> float:
    """The mean of one or more scores."""
    # Exactly: the mean of equal numbers, worked out, may differ from them in the last digit.
    return samples[0] if len(set(samples)) == 1 else statistics.fmean(samples)


def spread(samples: tuple[float, ...]) -> tuple[float, float]:
    """The mean of one or more scores and their standard deviation, which is 0 for a single one."""
    mean = average(samples)
    return mean, 0.0 if len(set(samples)) == 1 else statistics.stdev(samples, mean)
