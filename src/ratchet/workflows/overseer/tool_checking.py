"""Whether a tool that a model wrote can be used: its parts fit together, and its examples come out as they say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ratchet.asking import Answer, BadAnswer
from ratchet.engines.answer import NotAnAnswer, check_schema, parse_answer
from ratchet.flowkit.spec import ToolDefinition, WorkflowStep
from ratchet.runtime.attempts import OpenAttempt
from ratchet.tools.call import Occasion
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.definition_file import ToolError
from ratchet.tools.examples import ExampleResult, test_tool
from ratchet.tools.programs import has_function
from ratchet.workflows.overseer.inputs import misnamed_inputs
from ratchet.workflows.overseer.prompts import TOOL_SCHEMA
from ratchet.workflows.overseer.work import Work

_LONGEST_SOURCE = 100_000
_FEWEST_EXAMPLES, _MOST_EXAMPLES = 1, 50
# How long one example may take, and all of them.
_SECONDS, _ALL_SECONDS = 10.0, 120.0
_FUNCTION = "run"
_SHOWN = 300


def read_answer(tool_id: str, step: WorkflowStep, answer: Answer) -> Tool:
    """The tool that was answered. Raises `BadAnswer` with everything that is wrong with how it is put."""
    try:
        data = answer.output
        if not isinstance(data, Mapping):
            data = parse_answer(answer.text, TOOL_SCHEMA)
        problems = [*_problems(data, step)]
        if problems:
            raise BadAnswer(problems)
        return read_tool(_definition(data, step), folder=None, id=tool_id)
    except NotAnAnswer as problem:
        raise BadAnswer([str(problem)]) from None
    except ToolError as error:
        raise BadAnswer(error.problems) from None


async def try_out(work: Work, opened: OpenAttempt, tool: Tool) -> None:
    """Run the examples of a tool in the sandbox. Raises `BadAnswer` with those that do not come out."""
    occasion = Occasion(work.job.runtime, opened.spender, actor=work.job.process_id, seconds=_SECONDS)
    try:
        async with asyncio.timeout(_ALL_SECONDS):
            tested = await test_tool(tool, occasion)
    except TimeoutError:
        raise BadAnswer([f"the examples took longer than {_ALL_SECONDS:g} s in all"]) from None
    problems = [_told(number, each) for number, each in enumerate(tested.results, 1) if not each.passed]
    if problems or not tested.passed:
        raise BadAnswer(problems or ["there is no example"])


def carried(tool: Tool) -> ToolDefinition:
    """The tool as a workflow carries it."""
    assert tool.python is not None
    kept = ("input_schema", "output_schema", "examples", "tags")
    extra = {name: tool.data[name] for name in kept if name in tool.data}
    return ToolDefinition(
        tool_id=tool.id,
        name=tool.name,
        description=tool.description,
        tool_type="python",
        source_code=tool.python.source,
        extra=extra,
    )


def _told(number: int, result: ExampleResult) -> str:
    given = json.dumps(dict(result.input), ensure_ascii=False)[:_SHOWN]
    return f"example {number} with the input {given}: {result.why}"


def _definition(data: Mapping[str, Any], step: WorkflowStep) -> dict[str, Any]:
    return {
        "type": "python",
        "description": step.description,
        "tags": ["generated"],
        "input_schema": data["input_schema"],
        "output_schema": data["output_schema"],
        "examples": data["examples"],
        "python": {"source": data["source"]},
    }


def _problems(data: Mapping[str, Any], step: WorkflowStep) -> Iterator[str]:
    if len(data["source"]) > _LONGEST_SOURCE:
        yield f"the source has {len(data['source']):,} characters; at most {_LONGEST_SOURCE:,} are taken"
    elif not has_function(data["source"], _FUNCTION):
        yield f"the source defines no function {_FUNCTION}"
    if not _FEWEST_EXAMPLES <= len(data["examples"]) <= _MOST_EXAMPLES:
        yield f"there are {len(data['examples'])} examples; give from {_FEWEST_EXAMPLES} to {_MOST_EXAMPLES}"
    for name in ("input_schema", "output_schema"):
        try:
            check_schema(data[name])
        except ValueError as error:
            yield f"{name}: {error}"
            return
    yield from _misfits(data["input_schema"], step)


def _misfits(schema: Mapping[str, Any], step: WorkflowStep) -> Iterator[str]:
    """Where the inputs of the tool are not those that its step gives it."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, Mapping):
        yield 'input_schema must have "type": "object" and properties'
        return
    closed = {**schema, "additionalProperties": False}
    for problem in misnamed_inputs(closed, step.input_mapping):
        yield f"input_schema: the tool {problem}"
