"""A workflow as a graph: a column for each wave, a box for each step, a line for what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ratchet.research.views.markup import Markup, joined, tag

_BOX, _TALL, _ACROSS, _DOWN, _MARGIN = 128.0, 40.0, 70.0, 12.0, 14.0


def draw_graph(
    waves: Sequence[Sequence[str]], needs: Mapping[str, frozenset[str]], took: Mapping[str, float]
) -> Markup:
    """`took` is how long each step ran, in milliseconds."""
    most = max(map(len, waves))
    height = most * (_TALL + _DOWN) - _DOWN + 2 * _MARGIN
    places = {
        name: (_MARGIN + column * (_BOX + _ACROSS), _top(row, len(wave), height))
        for column, wave in enumerate(waves)
        for row, name in enumerate(wave)
    }
    lines = [_line(places[one], places[name]) for name, others in needs.items() for one in sorted(others)]
    boxes = [_box(name, place, took.get(name, 0.0)) for name, place in places.items()]
    width = len(waves) * (_BOX + _ACROSS) - _ACROSS + 2 * _MARGIN
    svg = tag(
        "svg",
        joined([*lines, *boxes]),
        class_="plot small",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label="The steps of the workflow, and which needs which",
        xmlns="http://www.w3.org/2000/svg",
    )
    return tag("div", svg, class_="wide")


def _top(row: int, rows: int, height: float) -> float:
    """Columns stand in the middle."""
    return (height - rows * (_TALL + _DOWN) + _DOWN) / 2 + row * (_TALL + _DOWN)


def _line(start: tuple[float, float], end: tuple[float, float]) -> Markup:
    x1, y1 = start[0] + _BOX, start[1] + _TALL / 2
    x2, y2 = end[0], end[1] + _TALL / 2
    middle = (x1 + x2) / 2
    return tag(
        "path",
        d=f"M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}",
        class_="edge",
    )


def _box(name: str, place: tuple[float, float], took: float) -> Markup:
    x, y = place
    middle = x + _BOX / 2
    return joined(
        [
            tag("rect", x=x, y=y, width=_BOX, height=_TALL, rx=7, class_="box"),
            tag("text", name, x=middle, y=y + 17, text_anchor="middle", class_="ink"),
            tag("text", f"{took:,.0f} ms", x=middle, y=y + 32, text_anchor="middle"),
        ]
    )
