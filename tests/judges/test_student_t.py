"""Student's t, held against scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from ratchet.judges.comparison import lower_tail, quantile

freedoms = st.one_of(st.integers(1, 60).map(float), st.floats(0.5, 5_000))


@given(freedoms, st.one_of(st.floats(-50, 50), st.floats(-1e9, 1e9)))
@example(1000.0, 3.34e-7)
def test_the_chance_of_a_value_is_scipys(freedom: float, value: float) -> None:
    assert lower_tail(freedom, value) == pytest.approx(
        float(stats.t.cdf(value, freedom)), rel=1e-9, abs=1e-290
    )


@given(freedoms.filter(lambda freedom: freedom >= 1), st.floats(1e-6, 1 - 1e-6))
def test_so_is_the_value_of_a_chance(freedom: float, chance: float) -> None:
    assert quantile(freedom, chance) == pytest.approx(float(stats.t.ppf(chance, freedom)), rel=1e-8, abs=1e-9)


def test_it_ends_at_what_no_number_can_hold() -> None:
    assert (lower_tail(3, -math.inf), lower_tail(3, math.inf), lower_tail(3, 0.0)) == (0.0, 1.0, 0.5)
    assert lower_tail(1, -1e200) == pytest.approx(1 / (math.pi * 1e200))
    assert lower_tail(2, -1e308) == 0.0
