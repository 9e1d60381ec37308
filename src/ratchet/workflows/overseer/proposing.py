"""Having the overseer plan, until the plan can run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.asking import Answer, BadAnswer, Question, Tried, try_until_good
from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.schema import plan_schema
from ratchet.flowkit.spec import StepType, WorkflowSpec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import iso
from ratchet.runtime.attempts import OpenAttempt
from ratchet.tools.definition import Tool
from ratchet.workflows.building import BadPlan, build_from_data
from ratchet.workflows.building.answers import find_plan
from ratchet.workflows.overseer.inputs import misnamed_inputs
from ratchet.workflows.overseer.preparation import Prepared, described, prepare
from ratchet.workflows.overseer.prompts import plan_prompt, planner_rules, with_schema
from ratchet.workflows.overseer.reusing import Known
from ratchet.workflows.overseer.work import Work

STEP = "plan"
ROLE = "overseer"


@dataclass(frozen=True, slots=True)
class Proposed:
    """A plan that can run but for the tools that are yet to be written. `template` is what it was modelled on."""

    spec: WorkflowSpec
    template: str | None
    repaired: tuple[str, ...]


async def propose_plan(work: Work, template: Known | None) -> Proposed:
    """The plan of the overseer. Raises `NoAnswer` when it has none that can run."""
    prepared: list[Prepared] = []

    async def ask(before: Tried | None) -> Question:
        if not prepared:
            prepared.append(await asyncio.to_thread(prepare, work, template))
        return _question(work, prepared[0], before)

    async def check(_opened: OpenAttempt, answer: Answer) -> Any:
        spec = await asyncio.to_thread(_read, work, answer)
        return {"spec": write_spec(spec), "template": answer.about["template"]}

    good = await try_until_good(work.asker, STEP, ask, check)
    return Proposed(read_spec(good.value["spec"]), good.value["template"], good.repaired)


def _question(work: Work, prepared: Prepared, before: Tried | None) -> Question:
    prompt = plan_prompt(
        work.sentence,
        map(described, prepared.tools),
        prepared.example,
        [each.told for each in prepared.lessons],
        before,
    )
    schema = plan_schema()
    if not work.engine.capabilities.structured_output:
        prompt = with_schema(prompt, schema)
    return Question(ROLE, planner_rules(), prompt, schema, about=prepared.shown)


def _read(work: Work, answer: Answer) -> WorkflowSpec:
    """The workflow that was answered. Raises `BadAnswer` with everything that is wrong with it."""
    try:
        data = answer.output if isinstance(answer.output, dict) else find_plan(answer.text)
        if data is None:
            raise BadAnswer([f"the answer has no plan in it: {answer.text.strip()[:200] or 'nothing'!r}"])
        tools = work.tools()
        spec = build_from_data(data, known_tools=tools)
    except (BadPlan, SpecError) as bad:
        raise BadAnswer(bad.problems) from None
    problems = [*_foreign(spec), *_misfits(spec, tools)]
    if problems:
        raise BadAnswer(problems)
    return replace(spec, created_by=ROLE, created_at=iso(work.run.created_at), version="1.0.0")


def _foreign(spec: WorkflowSpec, where: str = "") -> Iterator[str]:
    """What a person may write into a workflow, and a model may not: code that nobody has tried, and files."""
    for name in spec.tool_definitions:
        yield f"{where}tools has {name}: a plan carries no tools; let a step have it written with generate_tool"
    for step in spec.steps:
        here = f"{where}step {step.step_id}: "
        if step.tool_path is not None or step.workflow_path is not None:
            yield f"{here}a plan names no files; name a tool, or have one written with generate_tool"
        if step.workflow_spec is not None:
            yield from _foreign(step.workflow_spec, here)


def _misfits(spec: WorkflowSpec, tools: Mapping[str, Tool], where: str = "") -> Iterator[str]:
    """Steps that do not give a tool what it needs."""
    for step in spec.steps:
        here = f"{where}step {step.step_id}: "
        if step.workflow_spec is not None:
            yield from _misfits(step.workflow_spec, tools, here)
            continue
        tool = None if step.generate_tool else tools.get(step.tool_name or "")
        if tool is not None and step.step_type is not StepType.LLM_CALL:
            for problem in misnamed_inputs(tool.input_schema or {}, step.input_mapping):
                yield f"{here}tool {tool.id} {problem}"
