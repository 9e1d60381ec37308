"""Taking apart the steps that need it, before the plan is committed. One that cannot be taken apart stays as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.asking import Answer, BadAnswer, NoAnswer, Question, Tried, find_object, try_until_good
from ratchet.engines import Engine
from ratchet.kernel import BudgetExceeded
from ratchet.protocols.planning.branching import Begun
from ratchet.protocols.planning.plan import Plan, PlannedStep
from ratchet.protocols.planning.prompts import decomposer_rules, step_prompt
from ratchet.protocols.planning.reading import read_step
from ratchet.protocols.planning.schema import STEP_SCHEMA, with_every_key
from ratchet.protocols.planning.sight import Sight
from ratchet.protocols.planning.work import Work
from ratchet.protocols.spec import infer_step_type
from ratchet.runtime.attempts import OpenAttempt

ROLE = "decomposer"
_STEP = "decompose:"
# Beyond both, a file asks for more than one thing at a time.
_LONG_CHARACTERS = 6_000
_MANY_ITEMS = 25
_ITEM = re.compile(r"^\s*(?:[-*+]|[0-9]+[.)])\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Decomposed:
    """The plan with the steps that were taken apart, those steps, and the reasons why others were not."""

    plan: Plan
    steps: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


async def decompose_plan(work: Work, engine: Engine, begun: Begun, sight: Sight, plan: Plan) -> Decomposed:
    """The plan with every step that needs it in smaller tasks."""
    contents: dict[str, str] = {}
    failed: dict[str, str] = {}
    for step in plan.steps:
        if not needs_decomposition(step):
            continue
        try:
            contents[step.name] = await _decompose(work, engine, begun, sight, plan, step)
        except (NoAnswer, BudgetExceeded) as error:
            # The step is as good as the plan that was accepted; smaller tasks would only have been better.
            failed[step.name] = str(error)
    return Decomposed(plan.with_contents(contents), tuple(contents), failed)


def needs_decomposition(step: PlannedStep) -> bool:
    """Whether a step is to be taken apart: as the plan says, or when its file is long and lists a great deal."""
    if step.name.startswith("00-") or (step.step_type or infer_step_type(step.name)) == "setup":
        return False
    if step.needs_decomposition is not None:
        return step.needs_decomposition
    return len(step.content) > _LONG_CHARACTERS and len(_ITEM.findall(step.content)) > _MANY_ITEMS


async def _decompose(
    work: Work, engine: Engine, begun: Begun, sight: Sight, plan: Plan, step: PlannedStep
) -> str:
    structured = engine.capabilities.structured_output

    async def ask(before: Tried | None) -> Question:
        prompt = step_prompt(sight, plan, step, before, with_schema=not structured)
        return Question(ROLE, decomposer_rules(), prompt, with_every_key(STEP_SCHEMA), reads_text=True)

    async def check(_opened: OpenAttempt, answer: Answer) -> Any:
        try:
            return read_step(
                answer.output if answer.output is not None else find_object(answer.text, "content")
            )
        except ValueError as error:
            raise BadAnswer([str(error)]) from None

    asker = work.asker("decompose", engine, begun.ground)
    good = await try_until_good(asker, f"{_STEP}{step.name}", ask, check)
    return str(good.value)
