"""The plot of scores over trials as a picture with a legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.research.views._report.markup import Markup, joined, tag
from ratchet.research.views.plot import Frame, Level, Mark, Plot, draw_plot

if TYPE_CHECKING:
    from ratchet.research.views._status import Status
    from ratchet.research.views.plotted import Plotted

_RADIUS, _KEPT_RADIUS = 2.6, 4.5


def plot(status: Status, shown: Plotted) -> Markup:
    drawn = draw_plot(status, shown)
    frame = drawn.frame
    parts = [*_axes(drawn), *_baseline(drawn.baseline, frame), *_best(drawn)]
    parts += [_mark(each, kind) for kind, marks in drawn.marks.items() for each in marks]
    picture = tag(
        "svg",
        joined(parts),
        class_="plot",
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        role="img",
        aria_label="Score of each trial by its number",
        xmlns="http://www.w3.org/2000/svg",
    )
    return joined([picture, _legend(drawn.noise), tag("p", drawn.note, class_="soft")])


def _axes(drawn: Plot) -> list[Markup]:
    frame = drawn.frame
    parts = []
    for tick in drawn.scores:
        parts.append(tag("line", x1=frame.left, x2=frame.right, y1=tick.at, y2=tick.at, class_="tick"))
        parts.append(tag("text", tick.text, x=frame.left - 8, y=tick.at + 4, text_anchor="end"))
    parts += [
        tag("text", tick.text, x=tick.at, y=frame.height - 22, text_anchor="middle") for tick in drawn.numbers
    ]
    parts.append(tag("line", x1=frame.left, x2=frame.right, y1=frame.floor, y2=frame.floor, class_="axis"))
    parts.append(tag("text", "trial", x=frame.right, y=frame.height - 6, text_anchor="end"))
    parts.append(tag("text", drawn.field, x=8, y=14, class_="ink"))
    return parts


def _baseline(level: Level | None, frame: Frame) -> list[Markup]:
    if level is None:
        return []
    left, right = frame.left, frame.right
    line = tag("line", _title(level.title), x1=left, x2=right, y1=level.y, y2=level.y, class_="base-line")
    if not level.height:
        return [line]
    band = tag("rect", x=left, width=right - left, y=level.top, height=level.height, class_="base-band")
    return [band, line]


def _best(drawn: Plot) -> list[Markup]:
    band = [tag("polygon", points=drawn.band, class_="band")] if drawn.band else []
    return [*band, tag("polyline", points=drawn.best, class_="best-line")] if drawn.best else band


def _mark(mark: Mark, kind: str) -> Markup:
    told, x, y = _title(mark.title), mark.x, mark.y
    if kind.startswith("failed-"):
        return tag("line", told, x1=x, x2=x, y1=y, y2=y + 8, class_=kind)
    if kind == "outside":
        return tag("path", told, d=f"M{x - 3:.1f} {y:.1f}h6", class_=kind)
    radius = _RADIUS if kind == "discard" else _KEPT_RADIUS
    return tag("circle", told, cx=x, cy=y, r=radius, class_=kind)


def _title(words: str) -> Markup:
    return tag("title", words)


def _legend(noise: float) -> Markup:
    keys = [("base", "baseline"), ("keep", "kept, and the best so far"), ("discard", "discarded")]
    keys += [("crash", "crashed"), ("limit", "over a limit"), ("judge", "disqualified")]
    if noise:
        keys[1] = ("keep", f"kept, and the best so far ± {noise:.3g} noise")
    shown = (tag("span", tag("i", class_=f"key-{key}"), words) for key, words in keys)
    return tag("div", *shown, class_="legend")
