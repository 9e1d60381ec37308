"""The plot of scores over trials as plain numbers: what was kept, the noise around it, and what failed at the edge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ratchet.kernel import TrialStatus, exp_id
from ratchet.ledger.trial_pages import Point, kept_lines, points_at
from ratchet.research.views._status import in_force
from ratchet.research.views.text import number, one_line

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trials import Trial
    from ratchet.research.views._status import BaselineView, Status


_KEEPS = 300
_BESTS = (TrialStatus.BASELINE, TrialStatus.KEEP)


@dataclass(frozen=True, slots=True)
class Plotted:
    """What the plot shows: some trials, evenly picked if there are too many, and the newest of what was kept."""

    points: tuple[Point, ...]
    kept: tuple[Trial, ...]
    last: int
    sampled: bool

    @property
    def bests(self) -> list[tuple[int, float]]:
        """The best so far and when, as far as it is shown: picked evenly at first, completely at the end."""
        known: dict[int, Trial | Point] = {each.number: each for each in self.kept}
        known |= {each.number: each for each in self.points if each.status in _BESTS}
        return [(each.number, each.score) for each in in_force(known.values()) if each.score is not None]

    @property
    def note(self) -> str:
        if not self.sampled:
            return f"All {self.last + 1:,} rows are shown, the baseline among them."
        return (
            f"A sample: {len(self.points):,} of {self.last + 1:,} rows, evenly picked by number, "
            f"and the newest {len(self.kept):,} that were kept."
        )


def plotted(tx: Transaction, run_id: int, next_number: int, most: int, *, keeps: int = _KEEPS) -> Plotted:
    """At most `most` trials and `keeps` that were kept, whatever the length of the run."""
    last = max(0, next_number - 1)
    sampled = next_number > most
    picked = [round(at * last / (most - 1)) for at in range(most)] if sampled else list(range(next_number))
    points = tuple(points_at(tx, run_id, picked))
    kept = tuple(reversed(kept_lines(tx, run_id, limit=keeps)))
    return Plotted(points, kept, last, sampled)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps `low` to `start` and `high` to `end`; what lies outside stays at the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        # Halved, so that the widest range there is does not overflow.
        width = self.high / 2 - self.low / 2
        share = (value / 2 - self.low / 2) / width if width else 0.5
        # Not by `min` and `max`: a plot asks thousands of times.
        inside = 0.0 if share < 0.0 else 1.0 if share > 1.0 else share
        return self.start + inside * (self.end - self.start)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers from `low` to `high`."""
        width = self.high - self.low
        if not math.isfinite(width) or width <= 0:
            return [self.low]
        rough = width / about
        power = 10.0 ** math.floor(math.log10(rough)) if rough > 1e-300 else rough
        step = next(power * each for each in (1, 2, 5, 10, 20) if power * each >= rough)
        first = math.ceil(self.low / step)
        return [at * step for at in range(first, first + about * 2) if at * step <= self.high]


def shown_range(always: Sequence[float], usual: Sequence[float]) -> tuple[float, float]:
    """A range with all of `always` in it and most of `usual`: a few wild values must not flatten the rest."""
    ordered = sorted(usual)
    cut = len(ordered) // 20
    inner = ordered[cut : len(ordered) - cut]
    values = [*always, *inner]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = (high / 2 - low / 2) * 0.12 or abs(high) * 0.05 or 1.0
    return low - room, high + room


_FAILED = "failed-"
_FAILURES = {
    TrialStatus.CRASH: "failed-crash",
    TrialStatus.PREFLIGHT_CRASH: "failed-crash",
    TrialStatus.SIZE_BLOCKED: "failed-limit",
    TrialStatus.TRAIN_BUDGET_OVERRUN: "failed-limit",
    TrialStatus.EVAL_BUDGET_OVERRUN: "failed-limit",
    TrialStatus.DISQUALIFIED: "failed-judge",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """How large a plot is, and where in it the scores are. What failed is marked under the floor, at `edge`."""

    width: float = 1060.0
    height: float = 420.0
    left: float = 78.0
    right: float = 1040.0
    top: float = 18.0
    floor: float = 358.0
    edge: float = 370.0


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


class Mark(NamedTuple):
    """A trial in the plot."""

    number: int
    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Level:
    """The baseline: its height, and its noise from `top` over `height`."""

    y: float
    title: str
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Plot:
    """`best` is the line of the best so far and `band` the noise around it, as points of SVG.

    `marks` go by kind: their status if the score is in the plot, else `outside`, or `failed-` and what kept it out.
    """

    frame: Frame
    field: str
    scores: Sequence[Tick]
    numbers: Sequence[Tick]
    baseline: Level | None
    best: str
    band: str
    noise: float
    marks: Mapping[str, Sequence[Mark]]
    note: str


def draw_plot(status: Status, shown: Plotted, frame: Frame | None = None) -> Plot:
    frame = frame or Frame()
    kept, baseline = shown.bests, status.baseline
    noise = 0.0 if baseline is None else baseline.noise
    across = Scale(0, max(1, shown.last), frame.left, frame.right)
    up = Scale(*_range(shown, kept, baseline), frame.floor, frame.top)
    steps = _steps(kept, shown.last)
    return Plot(
        frame=frame,
        field=one_line(status.standing.score_field, 40),
        scores=score_ticks(up),
        numbers=number_ticks(across),
        baseline=None if baseline is None else _level(baseline, up),
        best=best_line(kept, shown.last, across, up),
        band=_points([*_moved(steps, noise), *reversed(_moved(steps, -noise))], across, up) if noise else "",
        noise=noise,
        marks=_marks(shown, across, up, frame),
        note=shown.note,
    )


def best_line(kept: Sequence[tuple[int, float]], last: int, across: Scale, up: Scale) -> str:
    """The best so far as steps from one keep to the next, up to the last trial."""
    return _points(_steps(kept, last), across, up)


def score_ticks(up: Scale) -> list[Tick]:
    return [Tick(up(value), f"{value:.6g}") for value in up.ticks()]


def number_ticks(across: Scale) -> list[Tick]:
    return [Tick(across(value), exp_id(int(value))) for value in across.ticks(8) if value == int(value)]


def _range(
    shown: Plotted, kept: Sequence[tuple[int, float]], baseline: BaselineView | None
) -> tuple[float, float]:
    noise = 0.0 if baseline is None else baseline.noise
    always = [edge for _, score in kept for edge in (score - noise, score + noise)]
    if baseline is not None:
        always.append(baseline.score)
    scores = [
        each.score for each in shown.points if each.status and each.status.valid and each.score is not None
    ]
    return shown_range([each for each in always if math.isfinite(each)], scores)


def _steps(kept: Sequence[tuple[int, float]], last: int) -> list[tuple[int, float]]:
    ends = [at for at, _ in kept[1:]] + [last]
    return [(at, score) for (start, score), end in zip(kept, ends, strict=False) for at in (start, end)]


def _moved(steps: Sequence[tuple[int, float]], by: float) -> list[tuple[int, float]]:
    return [(at, score + by) for at, score in steps]


def _points(steps: Sequence[tuple[int, float]], across: Scale, up: Scale) -> str:
    return " ".join(f"{across(at):.1f},{up(score):.1f}" for at, score in steps)


def _level(baseline: BaselineView, up: Scale) -> Level:
    top, floor = up(baseline.score + baseline.noise), up(baseline.score - baseline.noise)
    return Level(up(baseline.score), f"baseline {number(baseline.score)}", min(top, floor), abs(floor - top))


def _marks(shown: Plotted, across: Scale, up: Scale, frame: Frame) -> dict[str, list[Mark]]:
    """Each trial at its score if that is valid, else at the edge; what was kept last, so that nothing covers it."""
    known = {each.number for each in shown.kept}
    marks: dict[str, list[Mark]] = {}
    for point in shown.points:
        if point.status is None or not point.status.tried or point.number in known:
            continue
        kind = _kind(point.status, point.score, up)
        y = up(point.score) if point.score is not None and not kind.startswith(_FAILED) else frame.edge
        mark = Mark(point.number, round(across(point.number), 1), round(y, 1), _title(point))
        marks.setdefault(kind, []).append(mark)
    for trial in shown.kept:
        if trial.score is not None:
            title = f"{_title(trial)}: {one_line(trial.hypothesis, 160)}"
            mark = Mark(trial.number, round(across(trial.number), 1), round(up(trial.score), 1), title)
            marks.setdefault(str(trial.status), []).append(mark)
    return marks


def _kind(status: TrialStatus, score: float | None, up: Scale) -> str:
    failure = _FAILURES.get(status)
    if failure is not None or score is None:
        return failure or _FAILURES[TrialStatus.CRASH]
    return str(status) if up.holds(score) else "outside"


def _title(trial: Point | Trial) -> str:
    return f"{exp_id(trial.number)} {trial.status} {number(trial.score)} {_specialist(trial.specialist)}"


@lru_cache(maxsize=256)
def _specialist(name: str) -> str:
    return one_line(name, 40)
