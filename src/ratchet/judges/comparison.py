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
from functools import cache, lru_cache
from types import MappingProxyType

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


def at_most(gains: Sequence[float], *, noise_sd: float | None, chance: float) -> float:
    """What the true gain does not exceed but for this chance, by the rounds so far; at least two of them."""
    rounds = len(gains)
    gain, sd = spread(tuple(gains))
    return gain - quantile(rounds - 1, chance) * _width(sd, rounds, noise_sd) / math.sqrt(rounds)


def shrunk(found: Look, *, above: float, alpha: float, share: float) -> float:
    """The gain of what was found better, less what it owes to having been picked for a high one.

    The most likely gain given that it came out high enough to be called better at this look, with the noise taken as
    normal: it lies between `low` and the mean.
    """
    reach = found.gain - found.low
    if reach <= 0.0:
        return found.gain
    error = reach / -quantile(found.rounds - 1, alpha * share)
    bar, seen = (above + reach) / error, found.gain / error
    low, high = seen - 100.0, seen
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if middle + _hazard(bar - middle) < seen else (low, middle)
    return min(max(low * error, found.low), found.gain)


def _hazard(value: float) -> float:
    """By how much the mean of a standard normal above `value` exceeds nought."""
    if value > 20.0:
        return value + 1.0 / value
    tail = math.erfc(value / math.sqrt(2.0)) / 2.0
    return math.exp(-value * value / 2.0) / math.sqrt(2.0 * math.pi) / tail


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


_TINY = 1e-300
_EXACT = 1e-15
# The fraction settles in some sqrt(freedom) terms; this is for a hang, not for slowness.
_MOST_TERMS = 100_000


def lower_tail(freedom: float, value: float) -> float:
    """The chance of a value of at most `value`, with so many degrees of freedom (above 0, need not be whole)."""
    beyond = _beyond(freedom, abs(value))
    return beyond if value < 0 else 1.0 - beyond


# A run asks for the same few again and again, and each takes a search.
@lru_cache(maxsize=4096)
def quantile(freedom: float, chance: float) -> float:
    """The value that is not exceeded with this chance, which lies between 0 and 1."""
    if chance > 0.5:
        return -quantile(freedom, 1.0 - chance)
    low, high = -1.0, 0.0
    while lower_tail(freedom, low) > chance:
        low, high = low * 2.0, low
    while (middle := (low + high) / 2.0) not in (low, high):
        if lower_tail(freedom, middle) > chance:
            high = middle
        else:
            low = middle
    return low


def _beyond(freedom: float, value: float) -> float:
    """The chance of more than `value`, which is not below 0."""
    # As logarithms: the square of a large value is more than a float can hold.
    ratio = value / math.sqrt(freedom)
    log_inside = -2.0 * math.log(math.hypot(1.0, ratio))
    if ratio == 0.0:
        return 0.5
    if math.exp(log_inside) == 0.0 and math.isinf(ratio):
        return 0.0
    log_outside = log_inside + 2.0 * math.log(ratio)
    half = freedom / 2.0
    front = math.lgamma(half + 0.5) - math.lgamma(half) - math.lgamma(0.5)
    front = math.exp(front + half * log_inside + 0.5 * log_outside)
    # The fraction converges quickly on one side of this point, and the other side is what is left of 1.
    if math.exp(log_inside) < (half + 1.0) / (half + 2.5):
        return front * _fraction(half, 0.5, math.exp(log_inside)) / half / 2.0
    return (1.0 - front * _fraction(0.5, half, math.exp(log_outside)) / 0.5) / 2.0


def _fraction(a: float, b: float, x: float) -> float:
    upper, lower = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    found = lower
    for term in range(1, _MOST_TERMS):
        even = term * (b - term) * x / ((a + 2 * term - 1) * (a + 2 * term))
        odd = -(a + term) * (a + b + term) * x / ((a + 2 * term) * (a + 2 * term + 1))
        for numerator in (even, odd):
            lower = 1.0 / _away(1.0 + numerator * lower)
            upper = _away(1.0 + numerator / upper)
            change = lower * upper
            found *= change
        if abs(change - 1.0) < _EXACT:
            break
    return found


def _away(value: float) -> float:
    """Not quite zero, since it is divided by."""
    return value if abs(value) > _TINY else _TINY
