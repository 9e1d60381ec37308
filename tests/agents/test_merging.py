"""Bringing two changes of one value together."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.agents.state import Clash, merge, merge_preferring, same
from ratchet.kernel import Misuse

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, 1.0, 0.5])
    | st.text("ab/~", max_size=2)
)
VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("abc", min_size=1, max_size=1), VALUES, max_size=3)


@given(VALUES, VALUES)
def test_a_change_on_one_side_is_taken_as_it_is(base: Any, changed: Any) -> None:
    assert same(merge(base, base, changed), changed)
    assert same(merge(base, changed, base), changed)
    assert same(merge(base, changed, changed), changed)


@pytest.mark.soak
@given(OBJECTS, OBJECTS, OBJECTS)
def test_the_sides_are_equal_but_for_the_order_of_what_was_appended(base: Any, one: Any, other: Any) -> None:
    assert _either_way(base, one, other) == _either_way(base, other, one)


@pytest.mark.soak
@given(OBJECTS, OBJECTS, OBJECTS)
def test_nothing_that_was_given_is_changed_or_shared(base: Any, mine: Any, theirs: Any) -> None:
    before = copy.deepcopy((base, mine, theirs))
    merged, _ = merge_preferring(base, mine, theirs)
    assert (base, mine, theirs) == before
    assert _parts(merged).isdisjoint(_parts(base) | _parts(mine) | _parts(theirs))


@pytest.mark.soak
@given(OBJECTS, OBJECTS, OBJECTS)
def test_preferring_differs_only_where_there_are_clashes(base: Any, mine: Any, theirs: Any) -> None:
    merged, clashes = merge_preferring(base, mine, theirs)
    if clashes:
        with pytest.raises(Clash) as raised:
            merge(base, mine, theirs)
        assert raised.value.paths == clashes
    else:
        assert same(merge(base, mine, theirs), merged)


def test_changes_of_different_keys_come_together() -> None:
    base = {"kept": 1, "gone": 1, "nested": {"one": 1, "two": 2}}
    mine = {"kept": 1, "nested": {"one": 10, "two": 2}, "mine": []}
    theirs = {"kept": 1, "gone": 1, "nested": {"one": 1, "two": 20}, "theirs": None}
    wanted = {"kept": 1, "nested": {"one": 10, "two": 20}, "mine": [], "theirs": None}
    assert merge(base, mine, theirs) == wanted


def test_what_both_appended_is_kept_with_mine_first() -> None:
    assert merge([1], [1, 2, 3], [1, 4]) == [1, 2, 3, 4]
    assert merge({}, {"notes": ["a"]}, {"notes": ["b"]}) == {"notes": ["a", "b"]}


def test_objects_that_both_added_are_merged() -> None:
    assert merge({}, {"users": {"a": 1}}, {"users": {"b": 2}}) == {"users": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    ("base", "mine", "theirs", "path"),
    [
        (1, 2, 3, ""),
        ({"n": 1}, {"n": 2}, {"n": 3}, "/n"),
        ({"n": 1}, {}, {"n": 3}, "/n"),
        ({"n": {"a": 1}}, {"n": {"a": 2}}, {}, "/n"),
        ({}, {"n": 1}, {"n": 2}, "/n"),
        ({"n": [1, 2]}, {"n": [1]}, {"n": [1, 2, 3]}, "/n"),
        ({"n": [1]}, {"n": [0, 1]}, {"n": [1, 2]}, "/n"),
        ({"n": None}, {"n": {"a": 1}}, {"n": {"b": 1}}, "/n"),
        ({"n": 1}, {"n": []}, {"n": {}}, "/n"),
        ({"a/b": {"c~d": 1}}, {"a/b": {"c~d": 2}}, {"a/b": {"c~d": 3}}, "/a~1b/c~0d"),
    ],
)
def test_a_contradiction_is_named_by_its_place(base: Any, mine: Any, theirs: Any, path: str) -> None:
    with pytest.raises(Clash) as raised:
        merge(base, mine, theirs)
    assert raised.value.paths == (path,)
    assert (path or "the whole value") in str(raised.value)
    merged, clashes = merge_preferring(base, mine, theirs)
    assert same(merged, mine)
    assert clashes == (path,)


def test_true_is_not_one_but_one_is_one_point_nought() -> None:
    assert merge({"n": 1}, {"n": True}, {"n": 1.0})["n"] is True
    with pytest.raises(Clash):
        merge({"n": 0}, {"n": 1}, {"n": True})
    assert merge({"n": 0}, {"n": 1}, {"n": 1.0}) == {"n": 1}


def test_an_error_stays_short_however_much_clashes() -> None:
    keys = [f"{number}-{'x' * 1000}" for number in range(200)]
    with pytest.raises(Clash) as raised:
        merge(*(dict.fromkeys(keys, value) for value in range(3)))
    assert len(raised.value.paths) == 50
    assert len(str(raised.value)) < 3000
    assert "190 other places" in str(raised.value)


def test_values_nested_too_deeply_are_refused() -> None:
    mine: Any = 1
    theirs: Any = 2
    for _ in range(20_000):
        mine, theirs = [mine], [theirs]
    with pytest.raises(Misuse, match="deep"):
        merge(None, mine, theirs)


def _either_way(base: Any, mine: Any, theirs: Any) -> Any:
    try:
        return _unordered(merge(base, mine, theirs))
    except Clash as clash:
        return sorted(clash.paths)


def _unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unordered(part) for key, part in value.items()}
    if isinstance(value, list):
        return sorted((_unordered(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _parts(value: Any) -> set[int]:
    """The identities of everything in it that can be changed."""
    if not isinstance(value, dict | list):
        return set()
    below = value.values() if isinstance(value, dict) else value
    return {id(value)}.union(*map(_parts, below))
