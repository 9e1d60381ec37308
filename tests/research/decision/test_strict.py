"""The strict rule, as the original has it."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.kernel import Direction, TrialStatus
from ratchet.research.decision import delta_text, strict

MIN, MAX = Direction
# As tables have scores: six decimals.
written = st.decimals(min_value=-100_000, max_value=100_000, places=6)


@settings(deadline=None)
@given(written, written, st.sampled_from(Direction))
def test_scores_as_tables_have_them_are_decided_as_their_decimals_are(
    score: Decimal, best: Decimal, direction: Direction
) -> None:
    ruled = strict(float(score), float(best), direction)

    better = score > best if direction is MAX else score < best
    assert ruled.status is (TrialStatus.KEEP if better else TrialStatus.DISCARD)
    assert ruled.delta_text == format(score - best + Decimal("0.000000"), "+.6f")


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(Direction))
def test_a_tie_is_discarded(score: float, direction: Direction) -> None:
    assert not strict(score, score, direction).kept


@settings(deadline=None)
@given(st.floats(-1e300, 1e300), st.sampled_from(Direction))
def test_the_smallest_gain_there_is_is_kept(best: float, direction: Direction) -> None:
    score = math.nextafter(best, math.inf if direction is MAX else -math.inf)
    assert strict(score, best, direction).kept
    assert not strict(best, score, direction).kept


@pytest.mark.parametrize("score", [None, float("nan"), float("inf"), float("-inf")])
def test_what_is_no_finite_number_is_discarded_without_a_delta(score: float | None) -> None:
    for direction in Direction:
        ruled = strict(score, 1.0, direction)
        assert (ruled.kept, ruled.delta, ruled.delta_text) == (False, None, "")


def test_the_delta_is_the_score_less_the_best_whichever_way_is_better() -> None:
    assert strict(25.1464, 25.2259, MIN).delta_text == "-0.079500"
    assert strict(0.5, 0.25, MAX).delta_text == "+0.250000"
    assert strict(0.25, 0.25, MAX).delta_text == "+0.000000"
    assert delta_text(-1e-9) == "-0.000000"
