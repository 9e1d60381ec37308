"""Plots of several runs: the best so far of each as a line, small in a list or side by side in one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.kernel import exp_id
from ratchet.research.views import Overview
from ratchet.research.views.plot import Frame, Scale, Tick, best_line, number_ticks, score_ticks, shown_range
from ratchet.research.views.text import number, one_line

# Of what a run has kept, so many steps of its line, so many dots on it, and so many steps of a small line.
_STEPS, _DOTS, _SPARK_STEPS = 300, 60, 40
_SPARK = Frame(width=120, height=28, left=2, right=118, top=3, floor=25, edge=25)


@dataclass(frozen=True, slots=True)
class Dot:
    """Something that was kept, in the line of a run."""

    number: int
    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class PlotLine:
    """`series` tells the lines apart; `text` stands at the end of it, at `x` and `y`."""

    run: int
    series: int
    text: str
    points: str
    x: float
    y: float
    dots: Sequence[Dot]


@dataclass(frozen=True, slots=True)
class Lines:
    frame: Frame
    scores: Sequence[Tick]
    numbers: Sequence[Tick]
    lines: Sequence[PlotLine]


def spark(run: Overview) -> str:
    """The best so far of a run as the points of a small line; empty while there is nothing to see."""
    if len(run.kept) < 2:
        return ""
    across = Scale(run.kept[0][0], max(run.kept[0][0] + 1, run.last), _SPARK.left, _SPARK.right)
    return best_line(_thinned(run.kept, _SPARK_STEPS), run.last, across, _up([run], _SPARK))


def draw_lines(runs: Sequence[Overview]) -> Lines:
    """The runs side by side, over the number of trials."""
    frame = Frame(height=400.0, right=900.0, floor=354.0, edge=354.0)
    across = Scale(0, max((1, *(run.last for run in runs))), frame.left, frame.right)
    up = _up(runs, frame)
    lines = [_line(run, series, across, up) for series, run in enumerate(runs) if run.kept]
    return Lines(frame, score_ticks(up), number_ticks(across), _apart(lines))


def _line(run: Overview, series: int, across: Scale, up: Scale) -> PlotLine:
    name = one_line(run.run.name, 40)
    dots = [
        Dot(at, across(at), up(score), f"{name} {exp_id(at)} {number(score)}")
        for at, score in _thinned(run.kept, _DOTS)
    ]
    points = best_line(_thinned(run.kept, _STEPS), run.last, across, up)
    return PlotLine(run.run.id, series, name[:20], points, across(run.last) + 6, dots[-1].y + 4, dots)


def _thinned(kept: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """So many of them, evenly picked, the first and the last among them."""
    if len(kept) <= most:
        return list(kept)
    return [kept[round(at * (len(kept) - 1) / (most - 1))] for at in range(most)]


def _apart(lines: Sequence[PlotLine], room: float = 14.0) -> list[PlotLine]:
    """The texts at the ends of the lines, moved down where they would cover each other."""
    moved: list[PlotLine] = []
    for line in sorted(lines, key=lambda each: each.y):
        above = max((each.y + room for each in moved if abs(each.x - line.x) < 140), default=-math.inf)
        moved.append(
            PlotLine(line.run, line.series, line.text, line.points, line.x, max(line.y, above), line.dots)
        )
    return sorted(moved, key=lambda each: each.series)


def _up(runs: Sequence[Overview], frame: Frame) -> Scale:
    return Scale(*shown_range([score for run in runs for _, score in run.kept], []), frame.floor, frame.top)
