"""A short formula for the sine between 0 and pi. Everything in this file may be changed."""

import math

HEIGHT = 0.25  # search: 0.1..0.6
BEND = 0.01  # search: 0.0..0.1
POWER = 2  # search: 1 | 2 | 3


def approximate(given):
    """`given` holds the `seed` and the `question`; the answer is one number for each point."""
    return [_sine(x) for x in given["question"]["points"]]


def _sine(x):
    arch = x * (math.pi - x)
    return arch * (HEIGHT + BEND * arch**POWER)
