"""Having the tools written that a plan asks for, and trying each one out before the plan counts."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.engines.engine import NotAnAnswer, check_schema, parse_answer
from ratchet.flowkit.inputs import with_defaults
from ratchet.flowkit.spec import NAME, StepType, ToolDefinition, WorkflowSpec, WorkflowStep
from ratchet.question import BadAnswer, EngineAnswer, EngineQuestion, Tried, try_until_good
from ratchet.runtime.attempts import OpenAttempt
from ratchet.tools.call import Occasion
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.definition_file import ToolError
from ratchet.tools.invocation import ExampleResult, test_tool
from ratchet.tools.programs import has_function
from ratchet.workflows.overseer.context import PlanningContext
from ratchet.workflows.overseer.prompts import TOOL_SCHEMA, tool_prompt, tool_writer_rules, with_schema

_LONGEST_SOURCE = 100_000
_FUNCTION = "run"
_SHOWN = 300
_ROLE = "tool writer"
_STEP = "tool:"


def misnamed_inputs(schema: Mapping[str, Any], given: Collection[str]) -> Iterator[str]:
    """What is wrong with the names of the inputs, said of the tool."""
    properties = schema.get("properties")
    names = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    filled = with_defaults(dict.fromkeys(given, ""), schema)
    for name in required if isinstance(required, list) else ():
        if name not in filled:
            yield f"needs the input {name}, which the step does not give"
    if names and schema.get("additionalProperties") is False:
        for name in given:
            if name not in names:
                yield f"has no input {name}; it has {', '.join(map(str, names))}"


_FEWEST_EXAMPLES, _MOST_EXAMPLES = 1, 50
# How long one example may take, and all of them.
_SECONDS, _ALL_SECONDS = 10.0, 120.0


def read_answer(tool_id: str, step: WorkflowStep, answer: EngineAnswer) -> Tool:
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


async def try_out(work: PlanningContext, opened: OpenAttempt, tool: Tool) -> None:
    """Run the examples of a tool in the sandbox. Raises `BadAnswer` with those that do not come out."""
    occasion = Occasion(work.job.runtime, opened.spender, actor=work.job.process_id, seconds=_SECONDS)
    try:
        async with asyncio.timeout(_ALL_SECONDS):
            tested = await test_tool(tool, occasion)
    except TimeoutError:
        raise BadAnswer([f"the examples took longer than {_ALL_SECONDS:g} s in all"]) from None
    problems = [
        _example_problem(number, each) for number, each in enumerate(tested.results, 1) if not each.passed
    ]
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


def _example_problem(number: int, result: ExampleResult) -> str:
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


@dataclass(frozen=True, slots=True)
class Made:
    """The workflow with its tools in it, the tools by their ids, and what was wrong with earlier sources."""

    spec: WorkflowSpec
    tools: Mapping[str, Tool]
    repaired: tuple[str, ...]


async def make_tools(work: PlanningContext, spec: WorkflowSpec) -> Made:
    """The workflow with every tool written that it asks for. Raises `NoAnswer` when one cannot be had."""
    bench = _Bench(work, taken={each.name for each in work.toolbox.list()})
    made = await bench.filled(spec)
    return Made(made, bench.tools, tuple(bench.repaired))


class _Bench:
    """Writes the tools of one workflow, and those of the workflows inside it, one after the other."""

    def __init__(self, work: PlanningContext, taken: set[str]) -> None:
        self._work = work
        self._taken = taken
        self.tools: dict[str, Tool] = {}
        self.repaired: list[str] = []

    async def filled(self, spec: WorkflowSpec, where: str = "") -> WorkflowSpec:
        """The workflow, with no tool in it that is yet to be written."""
        steps: list[WorkflowStep] = []
        definitions = dict(spec.tool_definitions)
        for step in spec.steps:
            if step.workflow_spec is not None:
                inner = await self.filled(step.workflow_spec, f"{where}{step.step_id}/")
                steps.append(replace(step, workflow_spec=inner))
            elif step.generate_tool:
                tool = await self._written(spec, step, where)
                definitions[tool.id] = carried(tool)
                steps.append(
                    replace(step, step_type=StepType.PYTHON_TOOL, tool_name=tool.id, generate_tool=False)
                )
            else:
                steps.append(step)
        portable = spec.portable or len(definitions) > len(spec.tool_definitions)
        return replace(spec, steps=tuple(steps), tool_definitions=definitions, portable=portable)

    async def _written(self, spec: WorkflowSpec, step: WorkflowStep, where: str) -> Tool:
        """The tool of a step, with examples that it has passed."""
        work, tool_id = self._work, self._id(spec, step)

        async def ask(before: Tried | None) -> EngineQuestion:
            prompt = tool_prompt(_purpose(work, step), before)
            if not work.engine.capabilities.structured_output:
                prompt = with_schema(prompt, TOOL_SCHEMA)
            return EngineQuestion(_ROLE, tool_writer_rules(), prompt, TOOL_SCHEMA)

        async def check(opened: OpenAttempt, answer: EngineAnswer) -> Any:
            tool = read_answer(tool_id, step, answer)
            await try_out(work, opened, tool)
            return tool.data

        good = await try_until_good(work.asker, f"{_STEP}{where}{step.step_id}", ask, check)
        tool = read_tool(good.value, folder=None, id=tool_id)
        self._taken.add(tool.id)
        self.tools[tool.id] = tool
        self.repaired.extend(good.repaired)
        return tool

    def _id(self, spec: WorkflowSpec, step: WorkflowStep) -> str:
        """A name that no other tool has: the one that the plan gives it, if it can."""
        wanted = step.tool_name or f"{spec.workflow_id}_{step.step_id}"
        if NAME.fullmatch(wanted) is None:
            wanted = f"{spec.workflow_id[:40]}_{step.step_id[:40]}".replace(".", "_")
        return next(name for name in _numbered(wanted) if name not in self._taken)


def _purpose(work: PlanningContext, step: WorkflowStep) -> dict[str, Any]:
    """What the writer of the tool is given."""
    return {
        "what it does": step.description,
        "part of": work.sentence,
        "inputs": {name: _origin(value) for name, value in step.input_mapping.items()},
        "runs once for each item of a list": step.for_each is not None,
    }


def _origin(value: Any) -> Any:
    """Where an input comes from, which says something about what it is."""
    return value if isinstance(value, str) else {"always": value}


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(2))
