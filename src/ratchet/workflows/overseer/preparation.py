"""What the overseer is shown before it plans: tools that may serve, a plan to learn from, what went wrong before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.writer import write_spec
from ratchet.memory import MemoryFault
from ratchet.tools.definition import Tool
from ratchet.workflows.overseer.reusing import Known
from ratchet.workflows.overseer.work import Work
from ratchet.workflows.remembering import Lesson, lessons_for
from ratchet.workflows.remembering.sentences import shared_words

_MOST_TOOLS = 12
_LONGEST_EXAMPLE = 12_000
_SHOWN = ("workflow_id", "description", "inputs", "outputs", "steps")


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool that may serve, and why."""

    tool: Tool
    why: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """`example` is the plan of the template, as it would be answered."""

    tools: tuple[Offered, ...]
    template: Known | None
    example: Mapping[str, Any] | None
    lessons: tuple[Lesson, ...]

    @property
    def shown(self) -> dict[str, Any]:
        """What was shown and why, for the record."""
        template = self.template
        return {
            "template": None if template is None else template.saved.name,
            "likeness": None if template is None else round(template.plan.likeness, 3),
            "tools": [{"tool": each.tool.id, "reason": each.why} for each in self.tools],
            "lessons": [each.told for each in self.lessons],
        }


def prepare(work: Work, template: Known | None) -> Prepared:
    """Look for it, and tell whoever watches."""
    example = None if template is None else _example(template)
    prepared = Prepared(
        tuple(_tools(work)), None if example is None else template, example, tuple(_lessons(work))
    )
    with work.job.write() as tx:
        tx.event("workflow.prepared", run_id=work.run.id, data=prepared.shown)
    return prepared


def described(offered: Offered) -> Mapping[str, Any]:
    """A tool as the overseer sees it."""
    tool = offered.tool
    told: dict[str, Any] = {"tool": tool.id, "type": str(tool.type), "description": tool.description}
    told |= {"input_schema": tool.input_schema, "output_schema": tool.output_schema}
    if tool.examples:
        first = tool.examples[0]
        told["example"] = {"input": dict(first.input), **({"output": first.output} if first.checked else {})}
    return {name: value for name, value in told.items() if value is not None}


def _example(template: Known) -> Mapping[str, Any] | None:
    """The plan without what it carries: a tool that was written for it would have to be written again.

    Nothing for one that is too long to be an example.
    """
    spec = read_spec(template.saved.spec)
    steps = tuple(
        replace(step, tool_name=None, generate_tool=True) if step.tool_name in spec.tool_definitions else step
        for step in spec.steps
    )
    plan = write_spec(replace(spec, steps=steps, tool_definitions={}, portable=False))
    shown = {"request": template.plan.sentence, "plan": {name: plan[name] for name in _SHOWN}}
    return shown if len(json.dumps(shown)) <= _LONGEST_EXAMPLE else None


def _tools(work: Work) -> list[Offered]:
    try:
        return [Offered(each.tool, each.why) for each in work.toolbox.search(work.sentence, _MOST_TOOLS)]
    except MemoryFault as fault:
        # Without a memory, the words that they share with the request must do.
        work.notes.append(f"tools were only looked for by their words: {fault}")
        usable = [each.tool for each in work.toolbox.list() if each.tool.refusal is None]
        usable.sort(key=lambda tool: -shared_words(work.sentence, f"{tool.name} {tool.description}"))
        return [Offered(tool, "shares words with the request") for tool in usable[:_MOST_TOOLS]]


def _lessons(work: Work) -> list[Lesson]:
    if work.memory is None:
        return []
    try:
        return lessons_for(work.memory, work.sentence)
    except MemoryFault as fault:
        # A memory that is out of reach costs advice, not the plan.
        work.notes.append(f"no lessons were looked for: {fault}")
        return []
