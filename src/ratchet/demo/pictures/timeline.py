"""Steps along the time: bars above each other ran side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.research.views.markup import Markup, joined, tag
from ratchet.research.views.plot import Scale

_WIDTH, _LEFT, _RIGHT = 760.0, 84.0, 24.0
_ROW, _TALL, _BOTTOM = 24.0, 16.0, 34.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A step from its begin to its end, in milliseconds of the run."""

    name: str
    begin: float
    end: float


def draw_timeline(bars: Sequence[Bar]) -> Markup:
    shown = sorted(bars, key=lambda bar: (bar.begin, bar.end))
    across = Scale(0.0, max((bar.end for bar in shown), default=0.0) or 1.0, _LEFT, _WIDTH - _RIGHT)
    height = len(shown) * _ROW + _BOTTOM
    parts = [part for at, bar in enumerate(shown) for part in _bar(at, bar, across)]
    svg = tag(
        "svg",
        joined([*_axis(across, height), *parts]),
        class_="plot small",
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        role="img",
        aria_label="When each step ran: bars above each other ran at the same time",
        xmlns="http://www.w3.org/2000/svg",
    )
    return tag("div", svg, class_="wide")


def _bar(at: int, bar: Bar, across: Scale) -> list[Markup]:
    y = 8 + at * _ROW
    title = tag("title", f"{bar.name}: {bar.end - bar.begin:,.0f} ms")
    start, end = across(bar.begin), across(bar.end)
    return [
        tag("text", bar.name, x=_LEFT - 10, y=y + 13, text_anchor="end", class_="ink"),
        tag("rect", title, x=start, y=y, width=max(2.0, end - start), height=_TALL, rx=4, class_="bar"),
    ]


def _axis(across: Scale, height: float) -> list[Markup]:
    parts = []
    for value in across.ticks(6):
        x = across(value)
        parts.append(tag("line", x1=x, x2=x, y1=4, y2=height - _BOTTOM + 4, class_="tick"))
        parts.append(tag("text", f"{value / 1000:g} s", x=x, y=height - 10, text_anchor="middle"))
    return parts
