"""States before and after a migration: a loss is seen whatever the new form is, and a new form alone is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.agents.checks.losses import compare_states

PEOPLE = {"names": ["Ada", "Eve"], "count": 74, "empty": [], "seen": {"Ada": 0}}


@pytest.mark.parametrize(
    "after",
    [
        PEOPLE,
        {"people": ["Ada", "Eve"], "total": 74, "seen": {"Ada": 0}},
        {"people": [{"name": "Ada"}, {"name": "Eve"}], "n": {"count": 74}, "seen": {"Ada": False}, "new": 1},
        {**PEOPLE, "language": "en"},
    ],
    ids=["the same", "renamed", "restructured", "with a default"],
)
def test_a_new_form_loses_nothing(after: dict[str, Any]) -> None:
    compared = compare_states(PEOPLE, after)
    assert compared.problem is None, compared


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ({}, "loses /count, /names/1, /names/0"),
        ({**PEOPLE, "count": 0}, "loses /count (3 values in"),
        ({**PEOPLE, "count": 75}, "loses /count"),
        ({**PEOPLE, "names": ["Ada"]}, "loses /names/1, /names"),
        ({**PEOPLE, "seen": {}}, "loses /seen"),
        ({"names": ["Ada", "Eve"], "count": 74}, "loses /seen"),
        ({**PEOPLE, "names": ["Ada", "Eve"] * 2}, "doubles /names"),
        ({**PEOPLE, "people": ["Ada", "Eve"]}, "doubles "),
    ],
    ids=["emptied", "zeroed", "changed", "shortened", "no keys", "no map", "doubled", "copied"],
)
def test_what_is_lost_or_doubled_is_named(after: dict[str, Any], problem: str) -> None:
    assert problem in str(compare_states(PEOPLE, after).problem)


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ({"owed": {"Ada": 7, "Eve": 5, "Bo": 0}}, "puts other values in the place of /owed/"),
        ({"owed": {"Ada": 0, "Eve": 7, "Bo": 5}}, "puts other values in the place of /owed/Ada (2 values"),
        ({"owed": {"Ada": 0, "Eve": 7}, "old": {"Ada": 5}}, "puts other values in the place of /owed/Ada"),
        ({"owed": {"Ada": {"cents": 5}, "Eve": 7, "Bo": 0}}, "None"),
        ({"debts": {"Eve": 7, "Ada": 5, "Bo": 1}}, "None"),
    ],
    ids=["exchanged", "passed on", "zeroed beside a copy", "deeper", "renamed"],
)
def test_a_migration_leaves_values_with_their_keys(after: dict[str, Any], problem: str) -> None:
    """Every value is still somewhere, but with somebody else."""
    assert problem in str(compare_states({"owed": {"Ada": 5, "Eve": 7, "Bo": 0}}, after).problem)


def test_an_edit_on_purpose_may_replace_and_add_but_not_remove() -> None:
    assert (
        compare_states(PEOPLE, {**PEOPLE, "count": 75, "names": ["A", "B", "C"]}, edited=True).problem is None
    )
    assert "/names" in str(compare_states(PEOPLE, {**PEOPLE, "names": ["Ada"]}, edited=True).problem)
    assert "/count" in str(compare_states(PEOPLE, {**PEOPLE, "count": 0}, edited=True).problem)


def test_it_says_how_much_there_was_before_and_after() -> None:
    details = compare_states(PEOPLE, {"count": 74}).details()
    assert (details["keys"], details["values"]) == ({"before": 4, "after": 1}, {"before": 3, "after": 1})
    assert details["bytes"]["before"] > details["bytes"]["after"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_no_state_loses_anything_to_itself(state: dict[str, Any]) -> None:
    assert compare_states(state, state).problem is None
    assert compare_states(state, state).replaced == ()
    assert compare_states(state, {"moved": state}).lost == ()
