"""The steps of a protocol with every try: what was refused, what was kept, and its commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.research.views.markup import Markup, joined, tag
from ratchet.research.views.text import one_line

_WIDTH, _LEFT = 760.0, 132.0
_ROW, _TALL, _BOX, _GAP, _MARGIN = 46.0, 34.0, 132.0, 26.0, 12.0
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Try:
    passed: bool
    told: str


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    commit: str
    tries: tuple[Try, ...]


def draw_tries(rows: Sequence[Row]) -> Markup:
    height = len(rows) * _ROW + _MARGIN
    parts = [part for at, row in enumerate(rows) for part in _row(at, row)]
    svg = tag(
        "svg",
        joined(parts),
        class_="plot small",
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        role="img",
        aria_label="The steps and their tries, each refused or kept",
        xmlns="http://www.w3.org/2000/svg",
    )
    return tag("div", svg, class_="wide")


def _row(at: int, row: Row) -> list[Markup]:
    y = _MARGIN + at * _ROW
    parts = [tag("text", row.name, x=_LEFT - 14, y=y + 21, text_anchor="end", class_="ink")]
    for place, each in enumerate(row.tries):
        x = _LEFT + place * (_BOX + _GAP)
        if place:
            line = f"M{x - _GAP + 4:.1f} {y + _TALL / 2:.1f}h{_GAP - 10:.1f}m-5 -4l5 4l-5 4"
            parts.append(tag("path", d=line, class_="edge"))
        parts.append(_box(x, y, place + 1, each))
    x = _LEFT + len(row.tries) * (_BOX + _GAP)
    parts.append(tag("text", row.commit[:_SHORT], x=x - _GAP + 14, y=y + 21, class_="mono"))
    return parts


def _box(x: float, y: float, number: int, each: Try) -> Markup:
    word, colour = ("kept", "good") if each.passed else ("refused", "bad")
    title = tag("title", one_line(each.told, 300))
    middle = x + _BOX / 2
    return joined(
        [
            tag("rect", title, x=x, y=y, width=_BOX, height=_TALL, rx=7, class_=f"box {colour}"),
            tag("text", f"try {number}: {word}", x=middle, y=y + 21, text_anchor="middle", class_="ink"),
        ]
    )
