"""Checks a packing with exact arithmetic and adds up its radii.

A number of the answer stands for exactly the fraction that it is in binary, and nothing is rounded until the sum: two
circles that overlap by one part in 10^300 overlap.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

COUNT = 26
KNOWN_BEST = Fraction("2.6359830853")


class Circle(NamedTuple):
    x: Fraction
    y: Fraction
    radius: Fraction


class Unfit(Exception):
    """The answer is not a packing."""


def score(given: dict[str, Any]) -> dict[str, Any]:
    """The sum of the radii, or why there is none."""
    try:
        circles = read(given["trial"]["answer"])
        check(circles)
    except Unfit as error:
        return {"invalid": str(error)}
    total = sum((circle.radius for circle in circles), Fraction(0))
    radii = [float(circle.radius) for circle in circles]
    return {
        "sum_radii": float(total),
        "measurements": {
            "below_known_best": float(KNOWN_BEST - total),
            "smallest_radius": min(radii),
            "largest_radius": max(radii),
        },
    }


def read(answer: object) -> list[Circle]:
    """The circles of `{"circles": [[x, y, radius], …]}`. Trusts nothing about the shape."""
    if not isinstance(answer, dict) or list(answer) != ["circles"]:
        raise Unfit('the answer must be an object with "circles" and nothing else')
    circles = answer["circles"]
    if not isinstance(circles, list) or len(circles) != COUNT:
        raise Unfit(f"there must be a list of exactly {COUNT} circles")
    return [_circle(number, each) for number, each in enumerate(circles)]


def _circle(number: int, given: object) -> Circle:
    if not isinstance(given, list) or len(given) != 3:
        raise Unfit(f"circle {number} must be a list of three numbers: x, y, radius")
    for name, value in zip(Circle._fields, given, strict=True):
        # A truth value is a whole number to Python. NaN and the infinities fail the comparison.
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise Unfit(f"the {name} of circle {number} must be a number from 0 to 1")
    return Circle(*map(Fraction, given))


def check(circles: list[Circle]) -> None:
    """Raises `Unfit` for a circle that crosses the wall or another one by anything at all."""
    for number, (x, y, radius) in enumerate(circles):
        over = max(radius - x, radius - y, x + radius - 1, y + radius - 1)
        if over > 0:
            raise Unfit(f"circle {number} leaves the square by {float(over):.3g}")
    for (first, one), (second, other) in combinations(enumerate(circles), 2):
        apart = (one.x - other.x) ** 2 + (one.y - other.y) ** 2
        if apart < (one.radius + other.radius) ** 2:
            over = float(one.radius + other.radius) - float(apart) ** 0.5
            raise Unfit(f"circles {first} and {second} overlap, by about {over:.3g}")
