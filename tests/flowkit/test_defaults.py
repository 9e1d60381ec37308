"""The defaults of a JSON Schema, filled in."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.flowkit.inputs import with_defaults

OPTIONS = {
    "type": "object",
    "properties": {"deep": {"default": 2}, "wide": {"type": "boolean"}},
}


@pytest.mark.parametrize(
    ("schema", "given", "filled"),
    [
        ({"properties": {"a": {"default": 1}}}, {}, {"a": 1}),
        ({"properties": {"a": {"default": 1}}}, {"a": 5, "b": 6}, {"a": 5, "b": 6}),
        ({"properties": {"a": {"default": None}}}, {}, {"a": None}),
        ({"properties": {"a": {"type": "string", "default": "x"}}}, {"a": None}, {"a": "x"}),
        ({"properties": {"a": {"type": ["string", "null"], "default": "x"}}}, {"a": None}, {"a": None}),
        ({"properties": {"options": OPTIONS}}, {}, {}),
        ({"properties": {"options": OPTIONS}}, {"options": {}}, {"options": {"deep": 2}}),
        ({"properties": {"options": {**OPTIONS, "default": {}}}}, {}, {"options": {"deep": 2}}),
        ({"items": OPTIONS}, [{}, {"deep": 9}], [{"deep": 2}, {"deep": 9}]),
        ({"prefixItems": [OPTIONS]}, [{}, {}], [{"deep": 2}, {}]),
        ({"allOf": [OPTIONS, {"properties": {"b": {"default": 3}}}]}, {}, {"deep": 2, "b": 3}),
        (
            {"$defs": {"o": OPTIONS}, "properties": {"o": {"$ref": "#/$defs/o"}}},
            {"o": {}},
            {"o": {"deep": 2}},
        ),
        ({"$defs": {"n": {"default": 4}}, "properties": {"n": {"$ref": "#/$defs/n"}}}, {}, {"n": 4}),
        ({"anyOf": [OPTIONS]}, {}, {}),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, {}, {}),
        (None, {"a": 1}, {"a": 1}),
    ],
)
def test_what_is_left_out_has_its_default(schema: Any, given: Any, filled: Any) -> None:
    assert with_defaults(given, schema) == filled


def test_a_default_that_leads_to_itself_comes_to_an_end() -> None:
    schema = {"properties": {"self": {"$ref": "#", "default": {}}}}
    assert with_defaults({}, schema)["self"]


def test_neither_the_value_nor_the_schema_is_changed() -> None:
    schema = {"properties": {"rows": {"default": []}, "options": OPTIONS}}
    given: dict[str, Any] = {"options": {}}
    with_defaults(given, schema)["rows"].append(1)
    assert given == {"options": {}}
    assert with_defaults({}, schema) == {"rows": []}
