"""Old forms of schemas, as JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.tools.definition_file import UnreadableDefinition, to_json_schema

OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, None),
        ({}, None),
        ([], None),
        ("string", {"type": "string"}),
        ("str - a name", {"type": "string", "description": "a name"}),
        ("what comes out", {"description": "what comes out"}),
        ({"a": "string"}, OBJECT | {"properties": {"a": {"type": "string"}}}),
        (
            {"a": "number - the first"},
            OBJECT | {"properties": {"a": {"type": "number", "description": "the first"}}},
        ),
        ({"a": "List[str]"}, OBJECT | {"properties": {"a": {"type": "array"}}}),
        ({"a": {"type": "any"}}, OBJECT | {"properties": {"a": {}}}),
        (
            {"a": {"type": "number", "required": True}, "b": {"type": "int", "required": False}},
            OBJECT | {"properties": {"a": {"type": "number"}, "b": {"type": "integer"}}, "required": ["a"]},
        ),
        (
            {"a": {"type": "string", "required": True, "default": "x"}},
            OBJECT | {"properties": {"a": {"type": "string", "default": "x"}}},
        ),
        (
            {"a": {"type": "string", "example": "x"}},
            OBJECT | {"properties": {"a": {"type": "string", "examples": ["x"]}}},
        ),
        (
            [{"name": "a", "type": "string", "required": True}, "b"],
            OBJECT | {"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]},
        ),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": {"type": "string"}, "size": "int"},
            OBJECT | {"properties": {"type": {"type": "string"}, "size": {"type": "integer"}}},
        ),
        ({"description": "string"}, OBJECT | {"properties": {"description": {"type": "string"}}}),
        (
            {"type": "object", "properties": {"a": {"type": "str", "required": True}}},
            OBJECT | {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"type": "array", "items": {"type": "any"}},
            {"type": "array", "items": {}},
        ),
        ({"$ref": "#/$defs/x", "$defs": {"x": {}}}, {"$ref": "#/$defs/x", "$defs": {"x": {}}}),
    ],
)
def test_every_form_means_one_schema_and_that_means_itself(written: Any, meant: Any) -> None:
    found = to_json_schema(written)

    assert found == meant
    assert to_json_schema(found) == found


@pytest.mark.parametrize(
    "written",
    [
        3,
        {"a": 3},
        [{"type": "string"}],
        {"type": "object", "properties": []},
        {"type": "string", "minLength": "x"},
    ],
)
def test_what_is_no_schema_is_refused(written: Any) -> None:
    with pytest.raises(UnreadableDefinition):
        to_json_schema(written)


def test_a_schema_that_goes_down_without_end_is_refused() -> None:
    deep: Any = {"type": "string"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}

    with pytest.raises(UnreadableDefinition, match="deep"):
        to_json_schema(deep)
