"""The paired test and its looks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ratchet.judges.comparison import Look, look, look_shares

GAINS = [0.4, 1.1, 0.2, 0.9, 0.7]
scores = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


def looked(gains: list[float], noise_sd: float | None = None, above: float = 0.0) -> Look:
    return look(gains, above=above, noise_sd=noise_sd, alpha=0.05, share=0.25)


def test_looks_begin_with_the_least_rounds_end_with_the_most_and_share_out_all_of_alpha() -> None:
    assert list(look_shares(3, 12)) == [3, 4, 6, 9, 12]
    assert list(look_shares(2, 2)) == [2]
    assert sum(look_shares(3, 12).values()) == pytest.approx(1.0)
    assert look_shares(3, 12)[12] == 4 * look_shares(3, 12)[3]


def test_without_known_noise_it_is_the_paired_t_test() -> None:
    found = looked(GAINS, above=0.1)

    tested = stats.ttest_1samp(GAINS, 0.1, alternative="greater")
    assert found.p_value == pytest.approx(tested.pvalue / 0.25)
    low, high = tested.confidence_interval(1 - 0.05 * 0.25).low, 2 * found.gain - found.low
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_it_is_better_exactly_when_all_of_the_interval_is() -> None:
    found = looked(GAINS)
    assert (
        looked(GAINS, above=found.low - 1e-9).p_value < 0.05 < looked(GAINS, above=found.low + 1e-9).p_value
    )


@settings(deadline=None)
@given(scores, st.floats(0, 1e6))
def test_known_noise_can_only_make_a_better_harder(gains: list[float], noise_sd: float) -> None:
    plain, wary = looked(gains, 0.0), looked(gains, noise_sd)
    if plain.gain > 0:
        assert wary.p_value >= plain.p_value * (1 - 1e-9)
    assert wary.low <= plain.low + 1e-9 * abs(plain.low)


def test_rounds_that_happen_to_agree_are_no_certainty_where_scores_are_known_to_differ() -> None:
    assert looked([0.5, 0.5, 0.5], noise_sd=1.0).p_value > 0.05
    assert looked([0.5] * 12, noise_sd=1.0).p_value < 0.05
    assert looked([50.0, 50.0, 50.0], noise_sd=1.0).p_value < 0.05


def test_where_no_noise_was_ever_seen_the_gain_is_what_it_is_and_a_tie_is_none() -> None:
    assert looked([0.5, 0.5], noise_sd=0.0) == Look(2, 0.5, 0.0, 0.0, 0.5, 0.5)
    assert looked([0.0, 0.0], noise_sd=0.0).p_value == 1.0
    assert looked([0.5, 0.5], noise_sd=0.0, above=0.5).p_value == 1.0


def test_where_noise_is_not_known_equal_gains_are_worth_a_coin_that_falls_on_one_side() -> None:
    assert looked([0.5] * 3).p_value == 0.5**3 / 0.25
    assert looked([0.5] * 10).p_value == 0.5**10 / 0.25


@pytest.mark.parametrize(
    "gains", [[1e150, 2e150, 1.5e150], [1e-300, 2e-300, 1.5e-300], [5e-324, 0.0, 5e-324]]
)
def test_numbers_at_the_edge_of_what_can_be_counted_give_an_answer(gains: list[float]) -> None:
    for noise_sd in (None, 0.0, 1e-300, 1e150):
        assert 0.0 <= looked(gains, noise_sd).p_value <= 1.0
