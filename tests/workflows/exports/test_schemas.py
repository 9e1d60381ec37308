"""The runner's own schema check agrees with the one that Ratchet uses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ratchet.flowkit.value_schema import mistakes, unknown_keywords

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 2.5, -3, "", "abc", "ABCDEF", [], [1], [1, 1], [1, "a"], [[1], [1.0]]),
    *({}, {"a": 1}, {"a": "x", "b": 2}, {"b": [1, 2, 3]}, {"a": {"a": 1}}, {"a": None, "c": True}),
]
SCHEMAS: list[Any] = [
    *(True, False, {}, {"type": "integer"}, {"type": ["string", "null"]}, {"type": "number", "minimum": 1}),
    *({"exclusiveMinimum": 0, "exclusiveMaximum": 2.5}, {"maximum": 0}, {"multipleOf": 0.5}),
    *({"enum": [1, "abc", None, [1]]}, {"const": 1}, {"const": True}, {"enum": [False]}),
    *({"minLength": 1, "maxLength": 3}, {"pattern": "^[a-c]+$"}, {"minItems": 1}, {"maxItems": 1}),
    *({"uniqueItems": True}, {"items": {"type": "integer"}}, {"prefixItems": [{"type": "integer"}]}),
    {"prefixItems": [{"type": "integer"}], "items": False},
    *({"minProperties": 1}, {"maxProperties": 1}, {"required": ["a"]}),
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
    *({"allOf": [{"type": "integer"}, {"minimum": 1}]}, {"anyOf": [{"type": "string"}, {"type": "array"}]}),
    *({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, {"not": {"type": "object"}}),
    {
        "$ref": "#/$defs/tree",
        "$defs": {"tree": {"properties": {"a": {"$ref": "#/$defs/tree"}}, "type": "object"}},
    },
    {"type": "string", "format": "email", "title": "t", "description": "d", "default": 1, "examples": [1]},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_it_says_the_same_of_every_value(schema: Any) -> None:
    judge = Draft202012Validator(schema)
    assert unknown_keywords(schema) == set()
    for value in VALUES:
        fits = next(mistakes(value, schema), None) is None
        assert fits == judge.is_valid(value), (value, list(mistakes(value, schema)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@pytest.mark.soak
@given(json_values, st.sampled_from(SCHEMAS), st.sampled_from(["allOf", "anyOf", "oneOf"]))
@settings(max_examples=200, deadline=None)
def test_it_says_the_same_of_schemas_that_are_put_together(value: Any, schema: Any, how: str) -> None:
    whole = {how: [{"properties": {"a": {"not": {"type": "null"}}}}, {"type": ["object", "array", "string"]}]}
    both = {"allOf": [whole, schema]} if not isinstance(schema, dict) or "$ref" not in schema else whole
    fits = next(mistakes(value, both), None) is None
    assert fits == Draft202012Validator(both).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "unknown"),
    [
        ({"if": {}, "then": {}}, {"if", "then"}),
        ({"properties": {"a": {"patternProperties": {}}}}, {"patternProperties"}),
        ({"items": {"anyOf": [{"contains": {}}]}}, {"contains"}),
        ({"$ref": "http://127.0.0.1/other.json"}, {"$ref"}),
    ],
)
def test_what_it_cannot_check_it_names(schema: Any, unknown: set[str]) -> None:
    assert unknown_keywords(schema) == unknown


def test_a_mistake_names_its_place() -> None:
    schema = {"properties": {"rows": {"items": {"required": ["name"]}}}}
    assert list(mistakes({"rows": [{"name": 1}, {}]}, schema)) == ["rows[1]: 'name' is required"]
