"""Arguments as a person writes them on a command line, held against a tool's schema."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.agents.client import check_arguments, find_tool, parse_arguments, signature
from ratchet.agents.contract import ToolShape
from ratchet.kernel import Misuse


def takes(required: tuple[str, ...] = (), **properties: Any) -> ToolShape:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolShape("do", "does it", schema)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "Ada", "Ada"),
        ({"type": "string"}, "7", "7"),
        ({"type": "string"}, "true", "true"),
        ({"type": "string"}, "", ""),
        ({"type": "string"}, "a=b", "a=b"),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "seven", "seven"),
        ({"type": "integer"}, "true", "true"),
        ({"type": "number"}, "7", 7),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "1", "1"),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": null}', {"a": None}),
        ({"type": ["string", "null"]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "7", 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "x"),
        ({}, "7", 7),
        ({}, "seven", "seven"),
        ("no schema", "7", 7),
    ],
)
def test_a_value_is_json_where_the_tool_takes_what_that_says_and_text_otherwise(
    schema: Any, text: str, value: object
) -> None:
    parsed = parse_arguments(takes(x=schema), [f"x={text}"])["x"]
    assert (parsed, type(parsed)) == (value, type(value))


def test_deeply_nested_json_is_text() -> None:
    text = "[" * 100_000
    assert parse_arguments(takes(x={"type": "array"}), [f"x={text}"]) == {"x": text}


@pytest.mark.parametrize("pair", ["Ada", "=Ada", ""])
def test_a_pair_needs_a_key(pair: str) -> None:
    with pytest.raises(Misuse, match="is no argument"):
        parse_arguments(takes(x={}), [pair])


def test_an_argument_that_the_tool_does_not_take_is_refused_with_those_it_takes() -> None:
    tool = takes(("who",), who={"type": "string"}, times={"type": "integer"})
    with pytest.raises(Misuse, match="do takes no hwo") as refused:
        parse_arguments(tool, ["hwo=Ada"])
    assert refused.value.hint == "it takes: who: string, times?: integer"
    with pytest.raises(Misuse, match="do needs who"):
        check_arguments(tool, {"times": 3})


def test_a_tool_that_takes_anything_takes_anything() -> None:
    tool = ToolShape("do", "", {"type": "object", "additionalProperties": True})
    assert parse_arguments(tool, ["x=1"]) == {"x": 1}


def test_an_unknown_tool_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Misuse, match="no tool 'undo'") as refused:
        find_tool([takes()], "undo")
    assert refused.value.hint == "there are: do"
    with pytest.raises(Misuse) as refused:
        find_tool([], "undo")
    assert refused.value.hint == "there are: none"


@pytest.mark.parametrize(
    "schema", [{}, {"properties": 3, "required": "x"}, {"properties": [], "required": [1, None]}]
)
def test_a_schema_that_makes_no_sense_is_taken_as_one_that_says_nothing(schema: dict[str, Any]) -> None:
    tool = ToolShape("do", "", schema)
    assert signature(tool) == []
    assert check_arguments(tool, {}) == {}


def test_reading_a_schema_does_not_change_it() -> None:
    schema = {"type": ["string"], "anyOf": [{"type": "null"}]}
    tool = takes(x=schema)
    assert signature(tool) == ["x?: string|null"]
    assert signature(tool) == ["x?: string|null"]
