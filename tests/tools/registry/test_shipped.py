"""The tools that come with Ratchet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ratchet.tools.call import Occasion, ToolCallFailed
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool, ToolType
from ratchet.tools.registry import Toolbox
from ratchet.tools.sources import SHIPPED, read_tool_file
from tests.tools.bench import Bench
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

TOOLS = {path.stem: read_tool_file(path) for path in sorted(SHIPPED.glob("*.yaml"))}
CHECKED = [
    pytest.param(tool, number, id=f"{tool.id}-{number}")
    for tool in TOOLS.values()
    for number, example in enumerate(tool.examples)
    if example.checked
]


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_each_says_what_it_is_for_and_what_it_takes(tool: Tool) -> None:
    assert tool.warnings == ()
    assert tool.refusal is None
    assert len(tool.description) > 30
    assert tool.tags
    assert tool.input_schema is not None
    assert tool.output_schema is not None
    assert None not in (tool.cost_tier, tool.speed_tier, tool.quality_tier, tool.version)
    assert tool.type is ToolType.LLM or tool.examples


@pytest.mark.parametrize(("tool", "number"), CHECKED)
def test_each_does_what_its_examples_say(bench: Bench, tool: Tool, number: int) -> None:
    example = tool.examples[number]

    assert bench.call(tool, example.input).value == example.output


@pytest.mark.parametrize(
    ("tool", "values", "told"),
    [
        ("basic_calculator", {"operation": "divide", "a": 1, "b": 0}, "divided by 0"),
        ("basic_calculator", {"operation": "power", "a": 10, "b": 10**9}, "too large"),
        ("csv_to_json", {"csv_text": "a,b\n1\n"}, "line 2 does not have 2 values"),
        ("template_render", {"template": "{{ gone }}", "values": {}}, "gone"),
    ],
)
def test_what_cannot_be_done_is_told(bench: Bench, tool: str, values: dict[str, Any], told: str) -> None:
    assert told in str(bench.fails(TOOLS[tool], values))


def test_functions_are_announced_with_what_they_take(toolbox: Toolbox) -> None:
    pick = toolbox.get("pick").tool

    assert pick.type is ToolType.FUNCTION
    assert pick.input_schema == {
        "type": "object",
        "properties": {"value": {}, "path": {"type": "string"}},
        "additionalProperties": False,
        "required": ["value", "path"],
    }
    concat = toolbox.get("concat").tool.input_schema
    assert concat is not None
    assert concat["required"] == ["parts"]


@pytest.mark.parametrize(
    ("name", "values", "answer"),
    [
        ("identity", {"value": [1]}, [1]),
        ("pick", {"value": {"rows": [{"a": 5}]}, "path": "rows.0.a"}, 5),
        ("concat", {"parts": ["a", 1], "separator": "-"}, "a-1"),
    ],
)
def test_functions_answer(
    bench: Bench,
    toolbox: Toolbox,
    name: str,
    values: dict[str, Any],
    answer: Any,
) -> None:
    assert bench.call(toolbox.get(name).tool, values).value == answer


def test_a_part_that_is_not_there_is_told(bench: Bench, toolbox: Toolbox) -> None:
    occasion: Occasion = bench.occasion()

    with pytest.raises(ToolCallFailed, match="there is no 'b'"):
        asyncio.run(call_tool(toolbox.get("pick").tool, {"value": {}, "path": "b"}, occasion))
