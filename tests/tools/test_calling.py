"""Calling a tool: what is asked of the inputs and of the answer, whatever the tool is."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Any

import pytest

from ratchet.tools.call import ToolResult, ToolUse
from ratchet.tools.definition import read_tool
from tests.tools.bench import Bench, python_tool
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

ECHO = "def run(**given):\n    return given"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, "'name' is a required property"),
        ({"name": 3}, "$.name: 3 is not of type 'string'"),
        ({"name": "x", "age": -1}, "$.age: -1 is less than the minimum"),
        ({"name": "x", "size": 1}, "'size' was unexpected"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_with_their_path(
    bench: Bench, given: dict[str, Any], where: str
) -> None:
    failed = bench.fails(python_tool(ECHO, input_schema=PERSON), given)
    assert failed.final
    assert where in str(failed)
    assert failed.use.wall_ms == 0


def test_an_answer_that_does_not_fit_is_a_failure_with_what_it_took(bench: Bench) -> None:
    failed = bench.fails(python_tool(ECHO, output_schema=PERSON), {"name": ["x"]})
    assert "$.name: ['x'] is not of type 'string'" in str(failed)
    assert not failed.final
    assert failed.use.wall_ms > 0


def test_what_fits_is_answered(bench: Bench) -> None:
    tool = python_tool(ECHO, input_schema=PERSON, output_schema=PERSON)
    assert bench.call(tool, {"name": "x", "age": 3}).value == {"name": "x", "age": 3}


def test_what_the_inputs_leave_out_has_the_default_of_its_schema(bench: Bench) -> None:
    options = {"type": "object", "properties": {"digits": {"type": "integer", "default": 2}}, "default": {}}
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "default": "x"}, "options": options},
        "required": ["name", "options"],
    }
    tool = python_tool(ECHO, input_schema=schema)
    assert bench.call(tool, {}).value == {"name": "x", "options": {"digits": 2}}


def test_the_inputs_may_be_any_mapping(bench: Bench) -> None:
    tool = python_tool(ECHO, input_schema=PERSON)
    assert bench.call(tool, MappingProxyType({"name": "x"})).value == {"name": "x"}


def test_a_label_cannot_be_called(bench: Bench) -> None:
    failed = bench.fails(read_tool({"type": "database"}, folder=None, id="store"))
    assert failed.final
    assert "only a label" in str(failed)


def test_a_tool_that_is_a_workflow_is_given_to_whoever_runs_workflows(bench: Bench) -> None:
    spec = {"workflow_id": "inner", "steps": [{"step_id": "a", "type": "llm_call"}]}
    tool = read_tool({"type": "workflow", "workflow": {"spec": spec}}, folder=None, id="inner")

    async def run(what: Any, values: Any) -> Any:
        return ToolResult({"ran": what["workflow_id"], **values}, ToolUse(tokens=3), simulated=True)

    called = bench.call(tool, {"x": 1}, run_workflow=run)
    assert (called.value, called.use.tokens, called.simulated) == ({"ran": "inner", "x": 1}, 3, True)
    assert bench.fails(tool, {"x": 1}).final


def test_a_workflow_that_takes_too_long_is_given_up(bench: Bench) -> None:
    spec = {"workflow_id": "inner", "steps": [{"step_id": "a", "type": "llm_call"}]}
    tool = read_tool(
        {"type": "workflow", "workflow": {"spec": spec}, "timeout": 0.05}, folder=None, id="inner"
    )

    async def run(what: Any, values: Any) -> Any:
        await asyncio.sleep(60)

    assert "within 0.05 s" in str(bench.fails(tool, run_workflow=run))
