"""Whether one side is better than the other beyond noise, from rounds in which both were measured.

A paired t-test, looked at a few times while rounds come in. `alpha` bounds the chance of a false "better" over all
looks together. The noise that is known beforehand counts too, but only to make a "better" harder: a few rounds that
happen to agree prove little where scores are known to differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from ratchet.judges.student_t import lower_tail, quantile

PAIRED = "paired t-test, sequential"


@dataclass(frozen=True, slots=True)
class Look:
    """What the rounds said so far.

    `p_value` is that of "better by more than asked", with the number of looks in it: it is held against alpha as it
    is. The true gain lies above `low` but for a chance of alpha, and below `high` but for another.
    """

    rounds: int
    gain: float
    sd: float
    p_value: float
    low: float
    high: float


@cache
def look_shares(least: int, most: int) -> Mapping[int, float]:
    """After how many rounds to look, and how much of alpha each look may spend.

    Looks lie further and further apart, since one more round among many tells little, and the share grows with the
    rounds: an early look sees only large gains anyway.
    """
    looks = [least]
    while looks[-1] < most:
        looks.append(min(most, max(looks[-1] + 1, looks[-1] * 3 // 2)))
    return MappingProxyType({rounds: rounds / sum(looks) for rounds in looks})


def look(gains: Sequence[float], *, above: float, noise_sd: float | None, alpha: float, share: float) -> Look:
    """Whether the mean gain is larger than `above`. `noise_sd` is the known spread of single scores."""
    rounds = len(gains)
    gain, sd = spread(tuple(gains))
    width = _width(sd, rounds, noise_sd)
    if width == 0.0:
        chance = _chance_without_noise(gain - above, rounds, noise_sd)
        return Look(rounds, gain, sd, min(1.0, chance / share), gain, gain)
    error = width / math.sqrt(rounds)
    chance = lower_tail(rounds - 1, (above - gain) / error)
    reach = -quantile(rounds - 1, alpha * share) * error
    return Look(rounds, gain, sd, min(1.0, chance / share), gain - reach, gain + reach)


def _width(sd: float, rounds: int, noise_sd: float | None) -> float:
    """The spread of the gains to reckon with. Where the rounds show less than the calibrated noise of a difference,
    that noise counts like one more observation."""
    known = math.sqrt(2.0) * (noise_sd or 0.0)
    if sd >= known:
        return sd
    return math.hypot(known, math.sqrt(rounds - 1) * sd) / math.sqrt(rounds)


def _chance_without_noise(gain: float, rounds: int, noise_sd: float | None) -> float:
    """Every round gave the same. If the baseline had no noise either, the gain is what it is. If that is not known, the
    rounds are worth as much as a coin that always fell on the same side."""
    if gain <= 0.0:
        return 1.0
    return 0.0 if noise_sd is not None else 0.5**rounds


def average(samples: tuple[float, ...]) -> float:
    """The mean of one or more scores."""
    # Exactly: the mean of equal numbers, worked out, may differ from them in the last digit.
    return samples[0] if len(set(samples)) == 1 else statistics.fmean(samples)


def spread(samples: tuple[float, ...]) -> tuple[float, float]:
    """The mean of one or more scores and their standard deviation, which is 0 for a single one."""
    mean = average(samples)
    return mean, 0.0 if len(set(samples)) == 1 else statistics.stdev(samples, mean)
