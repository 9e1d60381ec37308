"""The arithmetic of loops, for whatever numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.protocols.loops import limit_reached, loop_target, steps_again

indexes = st.integers(0, 40)
backs = st.integers(-5, 50)
skips = st.frozensets(st.integers(-3, 45), max_size=30)
lives = st.frozensets(indexes, max_size=40)


def test_the_worked_example() -> None:
    target = loop_target(3, 2, {1})

    assert target == 0
    assert steps_again(target, {1}, [0, 1, 3, 4]) == [0, 3, 4]


@given(indexes, backs, skips)
def test_a_target_lies_before_the_step_and_never_below_zero(
    index: int, back: int, skipped: frozenset[int]
) -> None:
    target = loop_target(index, back, skipped)

    assert 0 <= target <= max(0, index - max(1, back))


@given(indexes, backs, skips)
def test_a_target_is_the_nearest_place_that_is_not_skipped(
    index: int, back: int, skipped: frozenset[int]
) -> None:
    target = loop_target(index, back, skipped)

    farthest = max(0, index - max(1, back))
    assert target == 0 or target not in skipped
    assert all(place in skipped for place in range(target + 1, farthest + 1))


@given(indexes, backs, skips, lives)
def test_exactly_what_lives_from_the_target_on_is_done_again(
    index: int, back: int, skipped: frozenset[int], live: frozenset[int]
) -> None:
    target = loop_target(index, back, skipped)

    again = steps_again(target, skipped, live)

    assert again == sorted(again)
    assert set(again) == {place for place in live if place >= target} - skipped
    assert (index in again) == (index in live and index not in skipped)


@given(indexes, backs, skips, lives)
def test_going_back_twice_for_one_failure_goes_to_the_same_place(
    index: int, back: int, skipped: frozenset[int], live: frozenset[int]
) -> None:
    first = steps_again(loop_target(index, back, skipped), skipped, live)
    second = steps_again(loop_target(index, back, skipped), skipped, first)

    assert first == second


@given(st.integers(0, 30))
def test_a_loop_with_a_limit_goes_back_that_often(most: int) -> None:
    count = 0
    while not limit_reached(count, most):
        count += 1

    assert count == most
    assert not limit_reached(count, None)
