from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.memory.sqlite import Vectors

DIMENSION = 4
_changes = st.lists(
    st.tuples(st.integers(1, 60), st.none() | st.integers(0, 5)),
    max_size=150,
)


@given(_changes, st.integers(1, 10), st.none() | st.sets(st.integers(1, 60)))
def test_the_nearest_are_those_of_a_plain_sort(
    changes: list[tuple[int, int | None]], limit: int, among: set[int] | None
) -> None:
    vectors, plain = Vectors(DIMENSION), {}
    for number, direction in changes:
        if direction is None:
            vectors.drop(number)
            plain.pop(number, None)
        else:
            plain[number] = np.random.default_rng(direction).random(DIMENSION, dtype=np.float32)
            vectors.put(number, plain[number])
    query = np.array([1, -1, 0.5, 0.25], dtype=np.float32)
    likeness = {
        number: float((row.astype(np.float64) * query).sum())
        for number, row in plain.items()
        if among is None or number in among
    }
    expected = sorted(likeness.items(), key=lambda each: (-each[1], each[0]))[:limit]
    assert [
        tuple(each) for each in vectors.nearest(query, limit, None if among is None else sorted(among))
    ] == expected
    assert len(vectors) == len(plain)


def test_the_order_of_equals_does_not_depend_on_the_order_of_arrival() -> None:
    row = np.random.default_rng(1).random(256, dtype=np.float32)
    one, other = Vectors(256), Vectors(256)
    for number in range(100):
        one.put(number, row)
        other.put(99 - number, row)
    assert one.nearest(row, 7) == other.nearest(row, 7)
    assert [each.number for each in one.nearest(row, 7)] == list(range(7))


@pytest.mark.soak
@given(_changes, st.sampled_from([None, "a", "b", "gone"]), st.sampled_from([None, "x", "gone"]))
def test_only_those_of_a_kind_and_a_scope_are_near(
    changes: list[tuple[int, int | None]], kind: str | None, scope: str | None
) -> None:
    vectors, plain = Vectors(DIMENSION), {}
    row = np.ones(DIMENSION, dtype=np.float32)
    for number, direction in changes:
        if direction is None:
            vectors.drop(number)
            plain.pop(number, None)
        else:
            plain[number] = ("a" if direction % 2 else "b", "x" if direction > 2 else None)
            vectors.put(number, row, *plain[number])
    near = vectors.nearest(row, 100, kind=kind, scope=scope)
    assert [each.number for each in near] == sorted(
        number
        for number, (its_kind, its_scope) in plain.items()
        if kind in (None, its_kind) and scope in (None, its_scope)
    )
