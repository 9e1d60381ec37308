"""Having the tools written that a plan asks for, and trying each one out before the plan counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.asking import Answer, Question, Tried, try_until_good
from ratchet.flowkit.spec import NAME, StepType, WorkflowSpec, WorkflowStep
from ratchet.runtime.attempts import OpenAttempt
from ratchet.tools.definition import Tool, read_tool
from ratchet.workflows.overseer.prompts import TOOL_SCHEMA, tool_prompt, tool_writer_rules, with_schema
from ratchet.workflows.overseer.tool_checking import carried, read_answer, try_out
from ratchet.workflows.overseer.work import Work

_ROLE = "tool writer"
_STEP = "tool:"


@dataclass(frozen=True, slots=True)
class Made:
    """The workflow with its tools in it, the tools by their ids, and what was wrong with earlier sources."""

    spec: WorkflowSpec
    tools: Mapping[str, Tool]
    repaired: tuple[str, ...]


async def make_tools(work: Work, spec: WorkflowSpec) -> Made:
    """The workflow with every tool written that it asks for. Raises `NoAnswer` when one cannot be had."""
    bench = _Bench(work, taken={each.name for each in work.toolbox.list()})
    made = await bench.filled(spec)
    return Made(made, bench.tools, tuple(bench.repaired))


class _Bench:
    """Writes the tools of one workflow, and those of the workflows inside it, one after the other."""

    def __init__(self, work: Work, taken: set[str]) -> None:
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

        async def ask(before: Tried | None) -> Question:
            prompt = tool_prompt(_purpose(work, step), before)
            if not work.engine.capabilities.structured_output:
                prompt = with_schema(prompt, TOOL_SCHEMA)
            return Question(_ROLE, tool_writer_rules(), prompt, TOOL_SCHEMA)

        async def check(opened: OpenAttempt, answer: Answer) -> Any:
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


def _purpose(work: Work, step: WorkflowStep) -> dict[str, Any]:
    """What whoever writes the tool is told of it."""
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
