"""By how much a version rises."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.kernel.semver import Bump
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.sync import change_between

INPUTS = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "number"}},
    "required": ["a"],
}


def tool(**data: Any) -> Tool:
    return read_tool({"type": "llm", "input_schema": INPUTS, **data}, folder=None, id="t")


@pytest.mark.parametrize("said", [None, "patch", "minor", "major"])
def test_it_rises_as_the_definition_says(said: str | None) -> None:
    assert change_between(tool(), tool(change_type=said)).bump is Bump(said or "patch")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({**INPUTS, "properties": {"b": {"type": "number"}}, "required": []}, "the input a is gone"),
        ({**INPUTS, "required": ["a", "b"]}, "the input b is required now"),
        (
            {**INPUTS, "properties": {"a": {"type": "integer"}, "b": {"type": "number"}}},
            "the input a is of another type",
        ),
    ],
)
def test_inputs_that_break_callers_make_it_major_and_it_says_so(schema: dict[str, Any], told: str) -> None:
    change = change_between(tool(), tool(input_schema=schema, change_type="minor"))

    assert change.bump is Bump.MAJOR
    assert change.reason is not None
    assert told in change.reason


def test_a_new_breaking_change_that_is_named_makes_it_major() -> None:
    old, new = tool(breaking_changes=["once"]), tool(breaking_changes=["once", "again"])

    assert change_between(old, old).bump is Bump.PATCH
    assert change_between(old, new).bump is Bump.MAJOR


def test_an_optional_input_more_or_less_is_no_break() -> None:
    more = {**INPUTS, "properties": {**INPUTS["properties"], "c": {}}}  # type: ignore[dict-item]
    less = {**INPUTS, "properties": {"a": {"type": "string"}}}

    assert change_between(tool(), tool(input_schema=more)).bump is Bump.PATCH
    assert change_between(tool(), tool(input_schema=less)).bump is Bump.PATCH


def test_the_first_version_breaks_nothing() -> None:
    assert change_between(None, tool(breaking_changes=["x"])).bump is Bump.PATCH
