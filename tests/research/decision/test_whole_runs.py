"""What is promised of a whole run: few false keeps among many trials, true gains found, gains not overstated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import pytest

from ratchet.kernel import Direction
from ratchet.research.adapter import KeepRule
from ratchet.research.decision import Champion, Decided, calibrate, decide, run_level
from tests.research.decision.scripted import ScriptedMeter

NOISE = 0.02


@dataclass(frozen=True)
class Made:
    """What became of a run: its keeps with the true gain of each, and how often it measured per trial."""

    keeps: list[tuple[float, Decided]]
    measurements: float
    truth: float
    best: Champion

    @property
    def false(self) -> int:
        return sum(gain <= 0 for gain, _ in self.keeps)


def simulate_run(
    seed: int,
    gains: Sequence[float],
    rule: KeepRule = KeepRule(),  # noqa: B008 - frozen
    shared: float = 0.0,
    *,
    planned: int | None = None,
) -> Made:
    """A run whose trials are truly better than the best of then by these gains; `shared` noise comes by the seed.

    It may end before all trials were made that were `planned`.
    """
    chance = random.Random(seed)
    worth, luck = {"best": 1.0}, dict[int, float]()

    def score(commit: str, seed: int, _held_out: bool) -> float:
        common = shared**0.5 * luck.setdefault(seed, chance.gauss(0, 1))
        return worth[commit] + NOISE * (common + (1 - shared) ** 0.5 * chance.gauss(0, 1))

    async def run() -> Made:
        meter = ScriptedMeter(score)
        baseline = await calibrate(meter, "best", rule)
        best, keeps, before = Champion.of(0, "best", baseline.record()), [], len(meter.asked)
        for trial, gain in enumerate(gains, 1):
            worth["new"] = worth["best"] + gain
            level = run_level(rule.alpha, trial, keeps=len(keeps), planned=planned or len(gains))
            ruled = await decide(
                meter, "new", best, rule, Direction.MAX, baseline.noise, trial=trial, level=level
            )
            if ruled.kept:
                keeps.append((gain, ruled))
                worth["best"] = worth["new"]
                best = Champion.of(trial, "best", ruled.record())
        return Made(keeps, (len(meter.asked) - before) / len(gains), worth["best"] - 1.0, best)

    return asyncio.run(run())


def test_the_levels_of_a_run_add_up_to_no_more_than_alpha() -> None:
    for planned in (None, 1, 30, 200):
        total = sum(run_level(0.05, trial, keeps=0, planned=planned) for trial in range(1, 20_001))
        assert 0.025 <= total <= 0.05 + 1e-9
    assert run_level(0.05, 1, keeps=3, planned=200) == pytest.approx(
        4 * run_level(0.05, 1, keeps=0, planned=200)
    )
    assert run_level(0.05, 1, keeps=10**6, planned=200) == 0.05


def test_runs_without_a_true_gain_keep_next_to_nothing() -> None:
    """At most a twentieth of one more than the keeps are expected to be false: 1.05 in 20 such runs."""
    runs = [simulate_run(seed, [0.0] * 200) for seed in range(20)]
    assert sum(made.false for made in runs) <= 1
    # What is no better still costs little.
    assert fmean(made.measurements for made in runs) < 8


@pytest.mark.soak
def test_the_promise_holds_where_there_are_true_gains_too() -> None:
    ideas = [0.08 if number % 20 == 0 else 0.0 for number in range(200)]
    runs = [simulate_run(100 + seed, ideas) for seed in range(20)]
    keeps = sum(len(made.keeps) for made in runs)
    assert keeps > 150
    # Three standard deviations above what is expected at most.
    bound = 0.05 * (20 + keeps)
    assert sum(made.false for made in runs) <= bound + 3 * bound**0.5


@pytest.mark.soak
@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_a_gain_of_one_percent_at_two_percent_noise_is_found_in_a_run_of_200_trials(shared: float) -> None:
    """At the level that such a run leaves to one trial, before anything was kept."""
    rule = KeepRule(find_effect=0.01)
    runs = [simulate_run(500 + seed, [0.01], rule, shared, planned=200) for seed in range(200)]
    assert sum(bool(made.keeps) for made in runs) >= 180


@pytest.mark.soak
def test_looking_for_small_gains_keeps_no_more_false_ones() -> None:
    runs = [simulate_run(900 + seed, [0.0] * 50, KeepRule(find_effect=0.01)) for seed in range(10)]
    assert sum(made.false for made in runs) <= 2


@pytest.mark.soak
def test_gains_are_not_overstated_and_lie_in_their_interval() -> None:
    runs = [simulate_run(2000 + seed, [0.03] * 5) for seed in range(100)]
    kept = [ruled for made in runs for _, ruled in made.keeps]
    assert len(kept) > 100
    assert fmean(ruled.estimate for ruled in kept) < 0.033
    assert fmean(ruled.estimate for ruled in kept) < fmean(ruled.delta for ruled in kept)
    assert all(ruled.low is not None and ruled.high is not None for ruled in kept)
    inside = [ruled.low <= 0.03 <= ruled.high for ruled in kept if ruled.low and ruled.high]
    assert sum(inside) >= 0.99 * len(inside)
    whole = [made.best.gained for made in runs if made.keeps]
    truths = [made.truth for made in runs if made.keeps]
    assert all(gained.low <= truth <= gained.high for gained, truth in zip(whole, truths, strict=True))
