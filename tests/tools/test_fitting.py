"""Values against schemas: the quick look agrees with the validator, and no pattern keeps this process busy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ratchet.tools.fit import misfit

_KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])
_NAMES = st.sampled_from(["a", "b", "c"])
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -2.0])
    | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_SCHEMAS = st.recursive(
    st.builds(lambda kind: {"type": kind}, _KINDS)
    | st.just({})
    | st.just({"minimum": 0})
    | st.just({"enum": [1, "x"]}),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(_NAMES, inner, max_size=3)},
            optional={
                "required": st.lists(_NAMES, unique=True, max_size=2),
                "additionalProperties": st.booleans(),
                "description": st.just("words"),
                "minProperties": st.just(1),
            },
        )
    ),
    max_leaves=5,
)


@given(_SCHEMAS, _VALUES)
def test_the_quick_look_says_what_the_validator_says(schema: dict[str, Any], value: Any) -> None:
    assert (misfit(value, schema) is None) is Draft202012Validator(schema).is_valid(value)


@given(_SCHEMAS, _VALUES)
def test_a_schema_is_read_anew_when_it_is_another_one(schema: dict[str, Any], value: Any) -> None:
    assert misfit(value, dict(schema)) == misfit(value, dict(schema))


@pytest.mark.parametrize("schema", [None, {}])
def test_without_a_schema_everything_fits(schema: dict[str, Any] | None) -> None:
    assert misfit(object(), schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(a+)+$"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "pattern": "(a+)+$"},
        {"allOf": [{"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": "(a+)+$"}]},
        {"patternProperties": {"(a+)+$": {}}},
    ],
)
def test_a_pattern_that_could_take_forever_is_not_tried(schema: dict[str, Any]) -> None:
    value: Any = {"a": 1} if "patternProperties" in schema else "a" * 60 + "b"
    assert "pattern" in (misfit(value, schema) or "")


def test_a_harmless_pattern_is_matched() -> None:
    schema = {"type": "string", "pattern": "^[a-z]+$"}
    assert misfit("abc", schema) is None
    assert "does not match" in (misfit("ABC", schema) or "")


def test_nothing_is_fetched_for_a_reference() -> None:
    assert "cannot be applied" in (misfit(1, {"$ref": "http://127.0.0.1:9/schema"}) or "")
