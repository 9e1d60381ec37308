"""Strategies compared for nothing, and arms side by side: landscapes with a stochastic scripted model, recorded runs.

The strategy, the population and the judge are those of a real run; only the model and the measuring are made up.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from ratchet.kernel import Direction, Misuse, TrialStatus
from ratchet.ledger.trials import TrialOrigin
from ratchet.research.adapter import KeepRule
from ratchet.research.decision import Champion, calibrate, decide, run_level
from ratchet.research.measurement.result import Measurement
from ratchet.research.strategy import BASELINES, Population, find_strategy
from ratchet.research.views._status import Arm, Band, Comparison

Point = tuple[float, ...]
_DIMENSIONS = 8
# How often the scripted model answers with a program that crashes, and takes parts of an inspiration.
_BROKEN, _CROSSED = 0.15, 0.4


class Landscape(Protocol):
    """Where programs are points. More is better."""

    def begin(self) -> Point: ...

    def propose(self, parent: Point, beside: Sequence[Point], chance: Random) -> Point | None:
        """What the scripted model makes of a program; nothing if that crashes."""

    def worth(self, point: Point) -> float: ...


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A landscape that is a formula. The model takes small steps, seldom large ones, and crosses what it is shown."""

    formula: Callable[[Point], float]

    def begin(self) -> Point:
        return (1.0,) * _DIMENSIONS

    def propose(self, parent: Point, beside: Sequence[Point], chance: Random) -> Point | None:
        if chance.random() < _BROKEN:
            return None
        place = list(parent)
        if beside and chance.random() < _CROSSED:
            other = chance.choice(beside)
            place = [chance.choice(pair) for pair in zip(place, other, strict=True)]
        step = 0.1 * math.exp(chance.gauss(0, 0.7))
        for at in chance.sample(range(_DIMENSIONS), 2):
            place[at] += chance.gauss(0, step)
        return tuple(place)

    def worth(self, point: Point) -> float:
        return self.formula(point)


def _hill(point: Point) -> float:
    return -sum(each * each for each in point)


def _rugged(point: Point) -> float:
    return -sum(each * each + 0.25 * (1 - math.cos(9 * each)) for each in point)


def _deceptive(point: Point) -> float:
    """A wide hill that is soon climbed, and a narrow one further away that is higher."""
    near = -sum((each - 0.8) ** 2 for each in point)
    far = 2 - 3 * sum((each - 1.6) ** 2 for each in point)
    return max(near, far)


def _steps(point: Point) -> float:
    """Most changes make no difference at all."""
    return math.floor(4 * _hill(point)) / 4


def _flat(_point: Point) -> float:
    return 0.0


LANDSCAPES: Mapping[str, Landscape] = {
    "hill": Synthetic(_hill),
    "rugged": Synthetic(_rugged),
    "deceptive": Synthetic(_deceptive),
    "steps": Synthetic(_steps),
    "flat": Synthetic(_flat),
}

# Trials of a recorded run that tell enough; of how many programs about as good one is drawn, at least and at most.
_TOLD = 20
_LEAST_LIKE, _MOST_LIKE = 5, 20


class RecordedLandscape:
    """What the model of a recorded run made of programs about as good: the gain or the crash of one of its trials.

    What lies beyond the best of that run nobody has seen, so nothing gets beyond it.
    """

    def __init__(self, rows: Sequence[TrialOrigin], direction: Direction) -> None:
        worths = {
            row.number: direction.gain(row.score, 0.0)
            for row in rows
            if row.score is not None and row.status is not None and row.status.valid
        }
        if 0 not in worths:
            raise Misuse("the run has no baseline with a score, so nothing can begin from it")
        self._baseline, self._best = worths[0], max(worths.values())
        self._made = sorted(
            (worths[row.parent], worths.get(row.number, -math.inf))
            for row in rows
            if row.parent in worths and row.status is not None and row.status.tried
        )
        if len(self._made) < _TOLD:
            raise Misuse(
                f"the run has {len(self._made)} trials that tell what its model does; {_TOLD} are needed",
                hint="choose a longer run, or a landscape",
            )
        self._like = min(max(_LEAST_LIKE, len(self._made) // 4), _MOST_LIKE)

    def begin(self) -> Point:
        return (self._baseline,)

    def propose(self, parent: Point, beside: Sequence[Point], chance: Random) -> Point | None:
        like = sorted(self._made, key=lambda made: abs(made[0] - parent[0]))[: self._like]
        before, after = chance.choice(like)
        return None if after == -math.inf else (min(self._best, parent[0] + after - before),)

    def worth(self, point: Point) -> float:
        return point[0]


def find_landscape(name: str) -> Landscape:
    """Raises `Misuse` for one that there is not."""
    if name not in LANDSCAPES:
        raise Misuse(f"there is no landscape {name!r}", hint=f"there are {', '.join(LANDSCAPES)}")
    return LANDSCAPES[name]


@dataclass(frozen=True, slots=True)
class Simulated:
    """`curve` is what the best is truly worth after each trial. `false` are the keeps that were no better."""

    curve: tuple[float, ...]
    keeps: int
    false: int


@dataclass
class _SimulatedMeter:
    worth: Mapping[str, float]
    noise: float
    chance: Random
    hash: str = field(default="0" * 64)

    async def preflight(self, commit: str, base: str) -> None:
        """Everything is worth a measurement."""

    async def measure(self, commit: str, *, seed: int, held_out: bool = False) -> Measurement:
        score = self.worth[commit] + (self.chance.gauss(0, self.noise) if self.noise else 0.0)
        return Measurement(
            commit=commit,
            seed=seed,
            held_out=held_out,
            score=score,
            measurements={f"instance_{at}": score for at in range(2)},
            wall_ms=0.0,
        )


async def _simulated(strategy: str, landscape: Landscape, trials: int, seed: int, noise: float) -> Simulated:
    choose, population = find_strategy(strategy), Population(Direction.MAX)
    # Apart from each other, so that every arm has the same luck.
    choosing, proposing = Random(f"{seed}/choose"), Random(f"{seed}/propose")
    points = {0: landscape.begin()}
    worth = {"0": landscape.worth(points[0])}
    meter = _SimulatedMeter(worth, noise, Random(f"{seed}/noise"))
    rule = KeepRule(deterministic=not noise)
    baseline = await calibrate(meter, "0", rule)
    best, keeps, false = Champion.of(0, "0", baseline.record()), 0, 0
    population.add(_origin(0, None, TrialStatus.BASELINE, best.score, None, baseline.record()))
    curve = []
    for trial in range(1, trials + 1):
        choice = choose(population, choosing)
        parent = best.number if choice.parent is None else choice.parent
        point = landscape.propose(points[parent], [points[each] for each in choice.inspirations], proposing)
        if point is None:
            population.add(_origin(trial, parent, TrialStatus.CRASH, None, choice.island, {}))
        else:
            commit = str(trial)
            points[trial], worth[commit] = point, landscape.worth(point)
            level = run_level(rule.alpha, trial, keeps=keeps, planned=trials)
            ruled = await decide(
                meter, commit, best, rule, Direction.MAX, baseline.noise, trial=trial, level=level
            )
            population.add(_origin(trial, parent, ruled.status, ruled.score, choice.island, ruled.record()))
            if ruled.kept:
                keeps, false = keeps + 1, false + (worth[commit] <= worth[best.commit])
                best = Champion.of(trial, commit, ruled.record())
        curve.append(worth[best.commit])
    return Simulated(tuple(curve), keeps, false)


def _origin(
    number: int,
    parent: int | None,
    status: TrialStatus,
    score: float | None,
    island: int | None,
    measurements: Mapping[str, Any],
) -> TrialOrigin:
    return TrialOrigin(number, parent, "model", status, score, {"island": island}, measurements, number)


def simulate(
    strategy: str, landscape: Landscape, *, trials: int, seed: int = 0, noise: float = 0.0
) -> Simulated:
    """A run of so many trials. The same seed, the same run. Raises `Misuse` for a strategy that there is not."""
    return asyncio.run(_simulated(strategy, landscape, trials, seed, noise))


def with_baselines(strategies: Sequence[str]) -> list[str]:
    """No comparison goes without what comes of asking often. Raises `Misuse` for a strategy that there is not."""
    arms = list(dict.fromkeys((*strategies, *BASELINES)))
    for each in arms:
        find_strategy(each)
    return arms


def compared(
    on: str,
    trials: int,
    curves: Mapping[str, Sequence[Sequence[float]]],
    direction: Direction,
    *,
    left: int = 0,
) -> Comparison:
    """`curves` has the runs of each arm: what the best was after each trial. In the order of their seeds."""
    places = sorted({max(1, trials // 8), max(1, trials // 4), max(1, trials // 2), trials})
    plain = curves[BASELINES[0]]
    arms = [
        Arm(
            name,
            len(runs),
            sum(direction.gain(mine[-1], other[-1]) > 0 for mine, other in zip(runs, plain, strict=False)),
            {str(at): Band.of([curve[at - 1] for curve in runs]) for at in places if runs},
        )
        for name, runs in curves.items()
    ]
    return Comparison(on, trials, BASELINES[0], tuple(arms), left)


def compare_simulated(
    on: str,
    landscape: Landscape,
    strategies: Sequence[str],
    *,
    trials: int,
    seeds: int,
    noise: float = 0.0,
    direction: Direction = Direction.MAX,
) -> Comparison:
    """Every arm with the same seeds and so the same model. What a recorded run wants low is shown as it is there."""
    sign = 1.0 if direction is Direction.MAX else -1.0
    curves = {
        name: [
            [sign * worth for worth in simulate(name, landscape, trials=trials, seed=seed, noise=noise).curve]
            for seed in range(seeds)
        ]
        for name in with_baselines(strategies)
    }
    return compared(on, trials, curves, direction)
