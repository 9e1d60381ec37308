"""What changed between two values of JSON."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.agentkit.values import difference, follow

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0, 1.0, 1.5])
    | st.text(max_size=2)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@pytest.mark.soak
@given(objects, objects)
def test_to_follow_the_difference_leads_from_one_value_to_the_other(old: Any, new: Any) -> None:
    reached = copy.deepcopy(old)
    follow(reached, json.loads(json.dumps(difference(old, new))))
    assert json.dumps(reached, sort_keys=True) == json.dumps(new, sort_keys=True)


@pytest.mark.soak
@given(objects)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert difference(value, copy.deepcopy(value)) == []


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, [["splice", ["a"], 2, 0, [3]]]),
        ({"a": [1, 2, 3]}, {"a": [1, 3]}, [["splice", ["a"], 1, 1, []]]),
        ({"a": [{"n": 1}, {"n": 2}]}, {"a": [{"n": 1}, {"n": 5}]}, [["set", ["a", 1, "n"], 5]]),
        ({"a": 1, "b": 2}, {"b": 2}, [["cut", ["a"]]]),
        ({"a": 1}, {"a": True}, [["set", ["a"], True]]),
    ],
)
def test_a_small_change_is_a_small_difference(old: Any, new: Any, steps: Any) -> None:
    assert difference(old, new) == steps
