from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.kernel import Limits, Usage

amounts = st.integers(min_value=0, max_value=10**12)
usages = st.builds(Usage, amounts, amounts, amounts, amounts, amounts, amounts)
whole = st.none() | amounts
real = st.none() | st.floats(min_value=0, max_value=1e9)
limits = st.builds(Limits, whole, real, real, whole)


@given(usages, usages, usages)
def test_usage_adds_up_in_any_order(one: Usage, two: Usage, three: Usage) -> None:
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + Usage() == one


@given(usages, usages)
def test_derived_measures_add_up_too(one: Usage, two: Usage) -> None:
    assert (one + two).tokens == one.tokens + two.tokens
    assert (one + two).cost_usd == pytest.approx(one.cost_usd + two.cost_usd)


def test_cached_input_is_not_counted_twice() -> None:
    assert Usage(input_tokens=10, cached_tokens=8, output_tokens=5).tokens == 15


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3", None])
@pytest.mark.parametrize("name", [field.name for field in fields(Usage)])
def test_usage_is_whole_and_not_negative(name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"usage {name} must be a whole number"):
        Usage(**{name: wrong})


@given(limits, usages)
def test_what_is_over_a_limit_has_reached_it(limit: Limits, usage: Usage) -> None:
    if limit.exceeded_by(usage):
        assert limit.reached_by(usage)


@given(limits, usages)
def test_what_is_left_is_never_negative_and_nothing_is_left_where_the_limit_is_reached(
    limit: Limits, usage: Usage
) -> None:
    left = limit.less(usage)
    for each in fields(Limits):
        allowed, rest = getattr(limit, each.name), getattr(left, each.name)
        assert (allowed is None) == (rest is None)
        if rest is not None:
            assert rest >= 0
            assert (rest == 0) == (getattr(usage, each.name) >= allowed)


@pytest.mark.soak
@given(limits, limits)
def test_the_tightest_of_two_limits_holds_both(one: Limits, two: Limits) -> None:
    tight = one.tightest(two)
    assert tight == two.tightest(one)
    for each in fields(Limits):
        given_ones = [x for x in (getattr(one, each.name), getattr(two, each.name)) if x is not None]
        assert getattr(tight, each.name) == min(given_ones, default=None)


def test_no_limit_is_never_reached() -> None:
    endless = Usage(*[10**12] * 6)
    assert Limits().reached_by(endless) is None
    assert Limits().less(endless) == Limits()


def test_a_limit_that_is_used_up_exactly_is_reached_and_not_exceeded() -> None:
    limit = Limits(cost_usd=1.5)
    exactly = Usage(cost_microusd=1_500_000)
    assert limit.exceeded_by(exactly) is None
    assert limit.reached_by(exactly) == ("cost_usd", 1.5, 1.5)
    assert limit.exceeded_by(exactly + Usage(cost_microusd=1)) == ("cost_usd", 1.500001, 1.5)


@pytest.mark.parametrize(
    ("limit", "usage", "measure"),
    [
        (Limits(tokens=10), Usage(input_tokens=6, output_tokens=5), "tokens"),
        (Limits(wall_seconds=1), Usage(wall_ms=1001), "wall_seconds"),
        (Limits(trials=0), Usage(trials=1), "trials"),
    ],
)
def test_each_measure_has_its_limit(limit: Limits, usage: Usage, measure: str) -> None:
    found = limit.exceeded_by(usage)
    assert found is not None
    assert found[0] == measure
