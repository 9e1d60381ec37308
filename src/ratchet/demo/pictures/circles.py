"""Packings of circles beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ratchet.research.views._report.markup import Markup, joined, tag

_SIDE = 240.0


class Circle(NamedTuple):
    """In a square of side 1."""

    x: float
    y: float
    radius: float


def draw_packings(packings: Mapping[str, Sequence[Circle]]) -> Markup:
    """Each with what it is called."""
    figures = [_figure(name, circles) for name, circles in packings.items()]
    return tag("div", *figures, class_="figures")


def _figure(name: str, circles: Sequence[Circle]) -> Markup:
    frame = tag("rect", x=1, y=1, width=_SIDE, height=_SIDE, class_="box")
    drawn = [
        tag("circle", cx=1 + each.x * _SIDE, cy=1 + each.y * _SIDE, r=each.radius * _SIDE, class_="packed")
        for each in circles
    ]
    svg = tag(
        "svg",
        joined([frame, *drawn]),
        viewBox=f"0 0 {_SIDE + 2:g} {_SIDE + 2:g}",
        role="img",
        aria_label=f"{len(circles)} circles in a square: {name}",
        xmlns="http://www.w3.org/2000/svg",
    )
    return tag("figure", svg, tag("figcaption", name))
