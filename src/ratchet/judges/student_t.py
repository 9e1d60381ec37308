"""Student's t distribution: how likely a value is by chance, and which value is that unlikely.

By the continued fraction of the incomplete beta function (Lentz's method), to some twelve digits.
"""

from __future__ import annotations

import math

_TINY = 1e-300
_EXACT = 1e-15
# The fraction settles in some sqrt(freedom) terms; this is for a hang, not for slowness.
_MOST_TERMS = 100_000


def lower_tail(freedom: float, value: float) -> float:
    """The chance of a value of at most `value`, with so many degrees of freedom (above 0, need not be whole)."""
    beyond = _beyond(freedom, abs(value))
    return beyond if value < 0 else 1.0 - beyond


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
