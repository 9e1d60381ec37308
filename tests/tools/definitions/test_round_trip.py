"""A definition that is written down and read again is the same one."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ratchet.ledger import to_json
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.definition_file import loaded_yaml

TEXT = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\u2028\u2029\x85\ufeff")
)
NAMES = st.text("abcdefghij_", min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=3)
TYPES = st.sampled_from(["string", "str - a text", "number", "any", "object", "list"])
SCHEMAS = st.one_of(
    st.dictionaries(NAMES, TYPES, min_size=1, max_size=3),
    st.dictionaries(NAMES, st.fixed_dictionaries({"type": TYPES, "required": st.booleans()}), max_size=3),
    st.lists(st.fixed_dictionaries({"name": NAMES, "type": TYPES}), max_size=3),
    st.just({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
)
BODIES = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("llm"),
            "llm": st.fixed_dictionaries({"system_prompt": TEXT, "temperature": st.floats(0, 2)}),
        }
    ),
    st.fixed_dictionaries({"type": st.just("python"), "python": st.fixed_dictionaries({"source": TEXT})}),
    st.fixed_dictionaries(
        {
            "type": st.just("executable"),
            "executable": st.fixed_dictionaries(
                {"command": TEXT.filter(str.strip), "args": st.lists(TEXT, max_size=3)}
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("openapi"),
            "openapi": st.fixed_dictionaries({"base_url": TEXT, "spec_dict": TABLES}),
            "code_template": TEXT,
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("mcp"),
            "mcp": st.fixed_dictionaries({"server_name": NAMES, "enabled": st.booleans()}),
            "capabilities": st.lists(TABLES, max_size=2),
        }
    ),
    st.fixed_dictionaries({"type": st.just("workflow"), "workflow": st.fixed_dictionaries({"spec": TABLES})}),
    st.fixed_dictionaries({"type": st.sampled_from(["custom", "database", "stream_source"])}),
)
COMMON = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXT,
        "description": TEXT,
        "tags": st.lists(TEXT, max_size=3),
        "cost_tier": st.sampled_from(["free", "very-high"]),
        "priority": st.integers(-100, 100),
        "version": st.sampled_from(["1.2.3", "2", "odd"]),
        "change_type": st.sampled_from(["patch", "major"]),
        "breaking_changes": st.lists(TEXT, max_size=2),
        "track_usage": st.booleans(),
        "network": st.booleans(),
        "cache": st.booleans(),
        "timeout": st.integers(1, 1000),
        "requirements": st.lists(NAMES, max_size=2),
        "fallback_tool": NAMES,
        "input_schema": SCHEMAS,
        "output_schema": SCHEMAS,
        "examples": st.lists(
            st.fixed_dictionaries({"input": TABLES}, optional={"output": VALUES}), max_size=3
        ),
        "constraints": st.fixed_dictionaries(
            {"max_memory_mb": st.integers(1, 100)}, optional={"other": VALUES}
        ),
        "usage_notes": VALUES,
    },
)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    return {**draw(COMMON), **draw(BODIES)}


@pytest.mark.soak
@given(definitions())
def test_what_is_written_is_read_as_the_same_tool(data: dict[str, Any]) -> None:
    tool = read_tool(data, folder=None, id="t")

    again = read_tool(json.loads(to_json(tool.data)), folder=None)

    assert again == tool
    assert again.data == tool.data
    assert again.hash == tool.hash
    assert read_tool(tool.data, folder=None, stored=True) == tool


@pytest.mark.soak
@given(definitions())
def test_a_file_says_the_same_as_the_definition_that_was_written_into_it(data: dict[str, Any]) -> None:
    tool = read_tool(data, folder=None, id="t")

    text = yaml.safe_dump(tool.data, sort_keys=False, allow_unicode=True)

    assert read_tool(loaded_yaml(text), folder=None) == tool


@pytest.mark.soak
@given(definitions(), TEXT)
def test_another_description_is_another_definition(data: dict[str, Any], text: str) -> None:
    tool = read_tool(data, folder=None, id="t")

    changed = dataclasses.replace(tool, description=text)

    assert (changed.hash == tool.hash) == (text == tool.description)


def test_a_tool_that_was_made_in_python_can_be_written() -> None:
    tool = read_tool({"type": "llm"}, folder=None, id="t")

    # What a model answers is not used again, unless it is asked at temperature 0.
    assert Tool(id="t", type=tool.type, name="t", llm=tool.llm, cache=False) == tool
    assert tool.data == {"id": "t", "type": "llm", "name": "t", "llm": {}}
