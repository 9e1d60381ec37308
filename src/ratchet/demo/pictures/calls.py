"""Calls of an agent along the time, each where it was answered, with the version that answered it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.research.views.markup import Markup, joined, tag
from ratchet.research.views.plot import Scale

_WIDTH, _HEIGHT = 760.0, 120.0
_LEFT, _RIGHT = 76.0, 24.0
_LANES = (70.0, 30.0)


@dataclass(frozen=True, slots=True)
class Call:
    """When a call began and ended, in seconds of any clock, and what was answered."""

    began: float
    ended: float
    answer: str


def draw_calls(calls: Sequence[Call], old: str, versions: tuple[str, str]) -> Markup:
    """`old` is what the first of both versions answers."""
    zero = calls[0].began
    end = max(call.ended for call in calls) - zero
    across = Scale(0.0, max(end, 0.1), _LEFT, _WIDTH - _RIGHT)
    parts = [*_lanes(versions), *(_dot(call, zero, old, across) for call in calls), *_axis(across)]
    svg = tag(
        "svg",
        joined(parts),
        class_="plot small",
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        role="img",
        aria_label=f"{len(calls)} calls while the agent was rewritten, by the version that answered",
        xmlns="http://www.w3.org/2000/svg",
    )
    told = (
        "Every dot is a call at the same address, from the feedback on, where it was answered. None failed."
    )
    return joined([tag("div", svg, class_="wide"), tag("p", told, class_="soft")])


def _lanes(versions: tuple[str, str]) -> list[Markup]:
    lines = [tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="tick") for y in _LANES]
    names = [
        tag("text", version, x=_LEFT - 14, y=y + 4, text_anchor="end", class_="ink")
        for version, y in zip(versions, _LANES, strict=True)
    ]
    return [*lines, *names]


def _dot(call: Call, zero: float, old: str, across: Scale) -> Markup:
    first = call.answer == old
    title = tag("title", f"{call.ended - zero:.1f} s: {call.answer}")
    return tag(
        "circle",
        title,
        cx=across(call.ended - zero),
        cy=_LANES[0] if first else _LANES[1],
        r=5,
        class_="first" if first else "second",
    )


def _axis(across: Scale) -> list[Markup]:
    return [
        tag("text", f"{value:g} s", x=across(value), y=_HEIGHT - 14, text_anchor="middle")
        for value in across.ticks(6)
    ]
