"""When a score is better, and when it only looks so."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from ratchet.judges.comparison import Comparison, Decision, Incumbent, Rule, compare, spread
from ratchet.kernel import Direction, Misuse

BETTER, NOT_BETTER, UNCLEAR = Decision


def decided(samples: list[float], incumbent: list[float], rule: Rule | None = None) -> Comparison:
    return compare(tuple(samples), Incumbent("i", tuple(incumbent)), rule or Rule())


def sequentially(mean: float, incumbent: list[float], rule: Rule, noise: random.Random) -> Comparison:
    """Measure as the judge does: one after the other, until it is clear."""
    samples: list[float] = []
    while True:
        samples.append(noise.gauss(mean, 1.0))
        comparison = decided(samples, incumbent, rule)
        if comparison.decision is not UNCLEAR:
            return comparison


def test_a_clear_gain_is_better_and_a_clear_loss_is_not() -> None:
    gain = decided([10.0, 10.1, 9.9], [5.0, 5.1, 4.9])
    assert gain.decision is BETTER
    assert (round(gain.effect or 0, 9), gain.n, gain.incumbent_mean) == (5.0, 3, 5.0)
    assert (gain.p_value or 1) < 0.001
    assert decided([5.0, 5.1, 4.9], [10.0, 10.1, 9.9]).decision is NOT_BETTER


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8),
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8),
)
def test_the_chance_is_that_of_welchs_test_and_of_students_for_a_single_score(
    samples: list[float], incumbent: list[float]
) -> None:
    assume(max(np.ptp(samples), np.ptp(incumbent)) > 1e-3)
    alone = 1 in (len(samples), len(incumbent))
    found = decided(samples, incumbent, Rule(deterministic=len(samples) == 1, least=2))
    sides = (
        (np.mean(samples), spread(tuple(samples))[1], len(samples)),
        (
            np.mean(incumbent),
            spread(tuple(incumbent))[1],
            len(incumbent),
        ),
    )
    tested = stats.ttest_ind_from_stats(*sides[0], *sides[1], equal_var=alone, alternative="greater")
    assert found.p_value == pytest.approx(float(tested.pvalue), rel=1e-6, abs=1e-300)


def test_less_is_better_when_told_so() -> None:
    rule = Rule(direction=Direction.MIN)
    assert decided([5.0, 5.1, 4.9], [10.0, 10.1, 9.9], rule).decision is BETTER
    assert decided([10.0, 10.1, 9.9], [5.0, 5.1, 4.9], rule).decision is NOT_BETTER


def test_a_gain_within_the_noise_is_unclear_and_in_the_end_not_better() -> None:
    assert decided([5.2, 4.9, 5.3], [5.0, 5.1, 4.9]).decision is UNCLEAR
    last = decided([5.2, 4.9, 5.3, 5.0, 5.2, 5.1, 4.8, 5.3, 5.1, 5.0], [5.0, 5.1, 4.9])
    assert last.decision is NOT_BETTER


def test_hope_ends_as_soon_as_the_mean_is_not_better() -> None:
    assert decided([5.2, 4.6], [5.0, 5.1, 4.9]).decision is UNCLEAR
    assert decided([5.2, 4.6, 5.1], [5.0, 5.1, 4.9]).decision is NOT_BETTER


def test_without_noise_the_difference_decides_at_once_and_a_tie_is_not_better() -> None:
    assert decided([0.3, 0.3, 0.3], [0.1 + 0.2] * 5).decision is NOT_BETTER
    assert decided([0.3, 0.3, 0.3], [0.3] * 5).decision is NOT_BETTER
    assert decided([0.3, 0.3, 0.3], [0.29] * 5).decision is BETTER
    exact = Rule(deterministic=True)
    assert decided([0.3], [0.29], exact).decision is BETTER
    assert decided([0.3], [0.3], exact).decision is NOT_BETTER


def test_a_gain_below_the_smallest_that_counts_is_not_better() -> None:
    assert decided([1.5], [1.0], Rule(deterministic=True, min_effect=0.5)).decision is NOT_BETTER
    assert decided([1.6], [1.0], Rule(deterministic=True, min_effect=0.5)).decision is BETTER
    noisy = Rule(min_effect=5.0)
    assert decided([10.0, 10.1, 9.9], [5.5, 5.6, 5.4], noisy).decision is NOT_BETTER


def test_a_single_score_of_the_incumbent_is_taken_to_be_as_noisy_as_the_candidate() -> None:
    assert decided([10.0, 12.0, 8.0], [9.0]).decision is UNCLEAR
    assert decided([10.0], [9.0, 11.0, 7.0], Rule(deterministic=True)).decision is NOT_BETTER
    assert decided([100.0, 100.1, 99.9], [9.0]).decision is BETTER


def test_without_an_incumbent_a_noisy_score_is_measured_well_and_an_exact_one_no_more_than_needed() -> None:
    assert compare((1.0, 1.0), None, Rule()).decision is UNCLEAR
    assert compare((1.0, 1.0, 1.0), None, Rule()).decision is BETTER
    assert compare((1.0, 2.0, 3.0), None, Rule(most=4)).decision is UNCLEAR
    assert compare((1.0, 2.0, 3.0, 1.0), None, Rule(most=4)).decision is BETTER
    assert compare((1.0,), None, Rule(deterministic=True)).decision is BETTER


def test_numbers_at_the_edge_of_what_can_be_counted_give_a_decision() -> None:
    assert decided([1e150, 9e149, 1e150], [1.0, 2.0, 3.0]).decision is BETTER
    assert decided([1e-300, 2e-300, 3e-300], [1e-300, 2e-300, 3e-300]).decision is NOT_BETTER
    assert decided([0.0, -0.0, 0.0], [0.0, 0.0]).decision is NOT_BETTER


def test_a_candidate_that_is_no_better_is_seldom_kept_although_one_looks_again_and_again() -> None:
    noise = random.Random(7)
    rule = Rule(alpha=0.05, least=3, most=10)
    kept = 0
    for _ in range(400):
        incumbent = [noise.gauss(0.0, 1.0) for _ in range(5)]
        kept += sequentially(0.0, incumbent, rule, noise).decision is BETTER
    assert kept <= 400 * 0.05


def test_a_candidate_that_is_much_better_is_nearly_always_kept() -> None:
    noise = random.Random(7)
    rule = Rule(alpha=0.05, least=3, most=10)
    kept = 0
    for _ in range(100):
        incumbent = [noise.gauss(0.0, 1.0) for _ in range(5)]
        kept += sequentially(4.0, incumbent, rule, noise).decision is BETTER
    assert kept >= 95


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": 1},
        {"least": 5, "most": 4},
        {"alpha": 0.0},
        {"alpha": 0.5},
        {"min_effect": -1.0},
        {"min_effect": float("nan")},
    ],
)
def test_a_rule_that_cannot_be_meant_is_misuse(wrong: dict[str, float]) -> None:
    with pytest.raises(Misuse):
        Rule(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [(), (float("nan"),), (float("inf"), 1.0)])
def test_an_incumbent_without_scores_is_misuse(samples: tuple[float, ...]) -> None:
    with pytest.raises(Misuse):
        Incumbent("i", samples)
