"""What the confident rule promises, on noise that is drawn: few false keeps, few measurements, honest scores."""

from __future__ import annotations

import asyncio
import random
from statistics import fmean, stdev

import pytest

from ratchet.kernel import Direction
from ratchet.research.adapter import KeepRule
from ratchet.research.decision import Champion, calibrate, decide
from tests.research.decision.simulated import World, coarse, heavy, simulate

RULE = KeepRule()
TRIALS = 1000


def most_by_chance(alpha: float, trials: int) -> float:
    """A rate of `alpha` comes out above this in one simulation of a thousand."""
    return alpha + 3.1 * (alpha * (1 - alpha) / trials) ** 0.5


@pytest.mark.soak
@pytest.mark.parametrize(
    "world",
    [
        World(0.0),
        World(0.0, shared=0.95),
        World(0.0, seeded=True),
        World(0.0, shared=0.95, seeded=True),
        World(0.0, wilder=4.0),
        World(0.0, draw=heavy),
        World(0.0, draw=coarse),
        World(-0.5),
    ],
    ids=[
        "normal",
        "shared seeds",
        "seeded",
        "seeded and shared",
        "wilder challenger",
        "heavy tails",
        "coarse",
        "a little worse",
    ],
)
def test_a_challenger_that_is_no_better_is_seldom_kept(world: World) -> None:
    outcome = simulate(world, trials=TRIALS)
    # First sight and lost hope stop many before the test, so the rate is well below what the test allows.
    assert outcome.rate <= RULE.alpha * 0.75


@pytest.mark.soak
def test_the_test_itself_keeps_to_alpha_when_everything_is_promising() -> None:
    """The stored score of the champion is far too low, as after a very unlucky calibration."""
    chance = random.Random(11)
    champion = Champion(0, "best", -100.0, (-100.0,))

    async def kept(trials: int) -> int:
        count = 0
        for trial in range(trials):
            meter = World(0.0).meter(chance)
            baseline = await calibrate(meter, "best", RULE)
            ruled = await decide(meter, "new", champion, RULE, Direction.MAX, baseline.noise, trial=trial)
            count += ruled.kept
        return count

    assert asyncio.run(kept(TRIALS)) <= most_by_chance(RULE.alpha, TRIALS) * TRIALS


@pytest.mark.soak
def test_a_gain_of_two_standard_deviations_is_found_nine_times_of_ten() -> None:
    assert simulate(World(2.0), trials=400).rate >= 0.88


@pytest.mark.soak
def test_shared_seeds_let_a_small_gain_be_found() -> None:
    apart = simulate(World(0.7), trials=400).rate
    shared = simulate(World(0.7, shared=0.95), trials=400).rate
    assert shared >= 2 * apart


def test_hopeless_challengers_cost_little() -> None:
    assert simulate(World(-3.0), trials=300).measurements <= 1.2
    assert simulate(World(-1.0), trials=300).measurements <= 3.0
    # Without a gain, half of them look promising at first.
    assert simulate(World(0.0), trials=300).measurements <= 7.5


def test_no_decision_costs_more_than_the_most_rounds() -> None:
    outcome = simulate(World(0.7), trials=300)
    assert max(len(each.taken) for each in outcome.rulings) == 1 + 2 * RULE.most


@pytest.mark.soak
def test_the_score_of_what_is_kept_is_hardly_flattered() -> None:
    """Whoever keeps the best of one measurement each reports luck as gain; rounds that had no say in the first pick do
    so far less."""
    outcome = simulate(World(2.0), trials=400)
    rounds = [each.score - 2.0 for each in outcome.kept]
    first = [(each.taken[0].score or 0.0) - 2.0 for each in outcome.kept]
    assert abs(fmean(rounds)) <= 0.12
    assert stdev(rounds) < stdev(first) / 1.5


@pytest.mark.soak
def test_small_gains_that_are_kept_are_flattered_less_than_by_one_measurement() -> None:
    outcome = simulate(World(0.7), trials=600)
    kept_once = [(each.taken[0].score or 0.0) for each in outcome.rulings if each.test != "first sight"]
    assert fmean(kept_once) - 0.7 > 0.35
    assert fmean(each.score for each in outcome.kept) - 0.7 < 0.35


@pytest.mark.soak
def test_the_interval_holds_the_true_gain_as_often_as_it_says() -> None:
    outcome = simulate(World(2.0), trials=400)
    looked = [each for each in outcome.rulings if each.low is not None and each.high is not None]
    above = sum((each.low or 0.0) > 2.0 for each in looked)
    below = sum((each.high or 0.0) < 2.0 for each in looked)
    assert above <= most_by_chance(RULE.alpha, len(looked)) * len(looked)
    assert below <= most_by_chance(RULE.alpha, len(looked)) * len(looked)
