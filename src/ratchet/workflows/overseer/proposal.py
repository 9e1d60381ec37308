"""Having the overseer plan, until the plan can run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.config.workflow_settings import Workflows
from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.schema import plan_schema
from ratchet.flowkit.spec import StepType, WorkflowSpec
from ratchet.flowkit.validation import require_valid
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import iso
from ratchet.ledger.workflows import SavedWorkflow, find_content, find_workflow
from ratchet.memory import MemoryFault
from ratchet.question import (
    BadAnswer,
    EngineAnswer,
    EngineQuestion,
    NoAnswer,
    Tried,
    find_object,
    try_until_good,
)
from ratchet.runtime.attempts import OpenAttempt
from ratchet.tools.definition import Tool
from ratchet.workflows.files import BadPlan, build_from_data, find_plan
from ratchet.workflows.memory import (
    RememberedPlan,
    WorkflowLesson,
    differ_in,
    find_plans,
    lessons_for,
    shared_words,
)
from ratchet.workflows.overseer.context import PlanningContext
from ratchet.workflows.overseer.prompts import (
    CONFIRM_SCHEMA,
    confirm_prompt,
    plan_prompt,
    planner_rules,
    with_schema,
)
from ratchet.workflows.overseer.request import SIMULATED, Reused
from ratchet.workflows.overseer.tool_writer import misnamed_inputs

_MOST_TOOLS = 12
_LONGEST_EXAMPLE = 12_000
_SHOWN = ("workflow_id", "description", "inputs", "outputs", "steps")
STEP, CONFIRM_STEP = "plan", "confirm"
ROLE = "overseer"


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """A remembered plan that still can be run, and what is known of it."""

    plan: RememberedPlan
    saved: SavedWorkflow


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """A plan to take at once, one to take if the overseer says that it fits (`near`), and one to show."""

    reuse: Reused | None = None
    saved: SavedWorkflow | None = None
    near: KnownPlan | None = None
    template: KnownPlan | None = None


def look_for_plan(work: PlanningContext) -> PlanSearch:
    """The remembered plan that is near enough. A run that wants a new one is not shown an old one either."""
    if work.memory is None or not work.spec["reuse"]:
        return PlanSearch()
    try:
        plans = find_plans(work.memory, work.sentence)
    except MemoryFault as fault:
        # A memory that is out of reach costs a session, not the plan.
        work.notes.append(f"no earlier plan was looked for: {fault}")
        return PlanSearch()
    known = [each for plan in plans if (each := _known(work, plan)) is not None]
    for each in known:
        if each.plan.exact:
            return PlanSearch(reuse=reused(each, "the same sentence was planned before"), saved=each.saved)
    near = [each for each in known if may_fit(work.settings, work.sentence, each.plan)]
    alike = [each for each in known if each.plan.likeness >= work.settings.template]
    return PlanSearch(near=near[0] if near else None, template=alike[0] if alike else None)


def may_fit(settings: Workflows, sentence: str, plan: RememberedPlan) -> bool:
    """Whether it is worth asking if a plan fits another sentence. Never with another number, name or negation."""
    return plan.likeness >= settings.reuse and differ_in(sentence, plan.sentence) is None


def reused(known: KnownPlan, reason: str) -> Reused:
    plan = known.plan
    return Reused(plan.workflow, plan.sentence, round(plan.likeness, 3), plan.exact, reason)


async def confirmed(work: PlanningContext, near: KnownPlan) -> PlanSearch | None:
    """The plan of a sentence that means nearly the same, if the overseer says that it does what is asked for now.

    One question, however it ends: an answer that cannot be used is a no.
    """

    async def ask(_before: Tried | None) -> EngineQuestion:
        spec = {name: near.saved.spec[name] for name in _SHOWN if name in near.saved.spec}
        prompt = confirm_prompt(work.sentence, near.plan.sentence, spec)
        if not work.engine.capabilities.structured_output:
            prompt = with_schema(prompt, CONFIRM_SCHEMA)
        return EngineQuestion(ROLE, planner_rules(), prompt, CONFIRM_SCHEMA)

    async def check(_opened: OpenAttempt, answer: EngineAnswer) -> Any:
        try:
            said = answer.output if isinstance(answer.output, dict) else find_object(answer.text, "fits")
        except ValueError as error:
            raise BadAnswer([str(error)]) from None
        return {"fits": said.get("fits") is True}

    try:
        good = await try_until_good(replace(work.asker, repairs=0), CONFIRM_STEP, ask, check)
    except NoAnswer as unclear:
        if unclear.is_permanent:
            raise
        work.notes.append(f"whether an earlier plan fits is not known: {unclear}")
        return None
    if not good.value["fits"]:
        return None
    reason = f"a sentence that means nearly the same was planned before; {work.engine.name} says that its plan fits"
    return PlanSearch(reuse=reused(near, reason), saved=near.saved)


def _known(work: PlanningContext, plan: RememberedPlan) -> KnownPlan | None:
    """The plan with its workflow, unless that is gone, cannot run any more, or is only a simulation."""
    with work.job.ledger.read() as tx:
        made = find_content(tx, plan.workflow, plan.hash)
        saved = find_workflow(tx, plan.workflow)
    if made is None or saved is None or (saved.origin == SIMULATED and not work.run.simulated):
        return None
    try:
        require_valid(read_spec(saved.spec), known_tools=work.tools())
    except SpecError:
        return None
    return KnownPlan(plan, saved)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that may serve, and why."""

    tool: Tool
    why: str


@dataclass(frozen=True, slots=True)
class PlanningMaterial:
    """`example` is the plan of the template, as it would be answered."""

    tools: tuple[OfferedTool, ...]
    template: KnownPlan | None
    example: Mapping[str, Any] | None
    lessons: tuple[WorkflowLesson, ...]

    @property
    def shown(self) -> dict[str, Any]:
        """What was shown and why, for the record."""
        template = self.template
        return {
            "template": None if template is None else template.saved.name,
            "likeness": None if template is None else round(template.plan.likeness, 3),
            "tools": [{"tool": each.tool.id, "reason": each.why} for each in self.tools],
            "lessons": [each.text for each in self.lessons],
        }


def prepare(work: PlanningContext, template: KnownPlan | None) -> PlanningMaterial:
    """Look for it, and announce it."""
    example = None if template is None else _example(template)
    prepared = PlanningMaterial(
        tuple(_tools(work)), None if example is None else template, example, tuple(_lessons(work))
    )
    with work.job.write() as tx:
        tx.event("workflow.prepared", run_id=work.run.id, data=prepared.shown)
    return prepared


def described(offered: OfferedTool) -> Mapping[str, Any]:
    """A tool as the overseer sees it."""
    tool = offered.tool
    shown: dict[str, Any] = {"tool": tool.id, "type": str(tool.type), "description": tool.description}
    shown |= {"input_schema": tool.input_schema, "output_schema": tool.output_schema}
    if tool.examples:
        first = tool.examples[0]
        shown["example"] = {"input": dict(first.input), **({"output": first.output} if first.checked else {})}
    return {name: value for name, value in shown.items() if value is not None}


def _example(template: KnownPlan) -> Mapping[str, Any] | None:
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


def _tools(work: PlanningContext) -> list[OfferedTool]:
    try:
        return [OfferedTool(each.tool, each.why) for each in work.toolbox.search(work.sentence, _MOST_TOOLS)]
    except MemoryFault as fault:
        # Without a memory, the words that they share with the request must do.
        work.notes.append(f"tools were only looked for by their words: {fault}")
        usable = [each.tool for each in work.toolbox.list() if each.tool.refusal is None]
        usable.sort(key=lambda tool: -shared_words(work.sentence, f"{tool.name} {tool.description}"))
        return [OfferedTool(tool, "shares words with the request") for tool in usable[:_MOST_TOOLS]]


def _lessons(work: PlanningContext) -> list[WorkflowLesson]:
    if work.memory is None:
        return []
    try:
        return lessons_for(work.memory, work.sentence)
    except MemoryFault as fault:
        # A memory that is out of reach costs advice, not the plan.
        work.notes.append(f"no lessons were looked for: {fault}")
        return []


@dataclass(frozen=True, slots=True)
class ProposedWorkflow:
    """A plan that can run but for the tools that are yet to be written. `template` is what it was modelled on."""

    spec: WorkflowSpec
    template: str | None
    repaired: tuple[str, ...]


async def propose_plan(work: PlanningContext, template: KnownPlan | None) -> ProposedWorkflow:
    """The plan of the overseer. Raises `NoAnswer` when it has none that can run."""
    prepared: list[PlanningMaterial] = []

    async def ask(before: Tried | None) -> EngineQuestion:
        if not prepared:
            prepared.append(await asyncio.to_thread(prepare, work, template))
        return _question(work, prepared[0], before)

    async def check(_opened: OpenAttempt, answer: EngineAnswer) -> Any:
        spec = await asyncio.to_thread(_read, work, answer)
        return {"spec": write_spec(spec), "template": answer.about["template"]}

    good = await try_until_good(work.asker, STEP, ask, check)
    return ProposedWorkflow(read_spec(good.value["spec"]), good.value["template"], good.repaired)


def _question(work: PlanningContext, prepared: PlanningMaterial, before: Tried | None) -> EngineQuestion:
    prompt = plan_prompt(
        work.sentence,
        map(described, prepared.tools),
        prepared.example,
        [each.text for each in prepared.lessons],
        before,
    )
    schema = plan_schema()
    if not work.engine.capabilities.structured_output:
        prompt = with_schema(prompt, schema)
    return EngineQuestion(ROLE, planner_rules(), prompt, schema, about=prepared.shown)


def _read(work: PlanningContext, answer: EngineAnswer) -> WorkflowSpec:
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
    """What a person may write into a workflow, and a model may not: untested code, and files."""
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
