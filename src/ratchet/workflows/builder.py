"""Builds workflows from what a model planned. A bad plan is an error that says why; it is never replaced by another."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import decoder, load_json
from ratchet.flowkit.reader import read_leniently
from ratchet.flowkit.spec import (
    OperationType,
    StepType,
    WorkflowInput,
    WorkflowOutput,
    WorkflowSpec,
    WorkflowStep,
)
from ratchet.flowkit.validation import check_spec
from ratchet.workflows.files import BadPlan

# The first kind of which a word occurs is taken, so the order is part of the meaning.
_WORDS: dict[OperationType, str] = {
    OperationType.GENERATOR: "generate create write make build produce compose draft invent",
    OperationType.TRANSFORMER: "transform convert translate change modify format rewrite summarize summarise parse",
    OperationType.VALIDATOR: "validate check verify test confirm ensure",
    OperationType.COMBINER: "combine merge join aggregate concatenate unite",
    OperationType.SPLITTER: "split divide separate break partition chunk",
    OperationType.FILTER: "filter select remove exclude find search",
}
LARGEST = 2 * 1024 * 1024
_MOST_FAULTS = 1000
_OPENING = re.compile(r'\{\s*"')
# An object in other people's notation: single quotes, or no quotes at all.
_ALMOST = re.compile(r"\{\s*(?:'|\w+\s*:)")
_STEPS = re.compile(r'"steps"\s*:')
_WRAPPERS = ("workflow", "plan", "workflow_spec")
CREATED_BY = "ratchet"
LONGEST_SLUG = 30
TEXT_BASED = "text_based"


def infer_operation_type(text: str) -> OperationType:
    """The operation that a description names with a whole word; one that names none generates something."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    for kind, known in _WORDS.items():
        if words & set(known.split()):
            return kind
    return OperationType.GENERATOR


def find_plan(text: str) -> dict[str, Any] | None:
    """The last object that has steps; nothing if there is no JSON at all.

    Raises `SpecError` for JSON that is broken or says no plan. Parts of a broken plan are never taken for the plan.
    """
    if len(text) > LARGEST:
        raise SpecError([f"the answer has {len(text):,} characters; at most {LARGEST:,} are read"])
    plan: dict[str, Any] | None = None
    seen = False
    fault: tuple[int, str] | None = None
    for at, found in _objects(text):
        seen = True
        if isinstance(found, str):
            fault = fault or (at, found)
        elif (one := _plan_in(found)) is not None:
            if fault and _STEPS.search(text, fault[0], at):
                break
            plan, fault = one, None
    if fault and (plan is None or _STEPS.search(text, fault[0])):
        raise SpecError([f"the JSON of the answer is broken: {fault[1]}"])
    if plan is None and (seen or _ALMOST.search(text)):
        raise SpecError(["the answer has JSON, but no object with a list of steps"])
    return plan


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Every outermost object and where it begins; for one that is broken, what is wrong with it."""
    read = decoder(strict=False).raw_decode
    faults = 0
    opening = _OPENING.search(text)
    while opening:
        at = opening.start()
        try:
            value, end = read(text, at)
            yield at, value
        except json.JSONDecodeError as error:
            yield at, f"line {error.lineno}, column {error.colno}: {error.msg}"
            # What lies before the fault is part of the broken object.
            end = max(error.pos, at + 1)
            faults += 1
        except RecursionError:
            raise SpecError(["the JSON of the answer is nested too deeply"]) from None
        except ValueError as error:
            raise SpecError([f"the JSON of the answer is broken: {error}"]) from None
        if faults > _MOST_FAULTS:
            raise SpecError(["the answer is full of broken JSON"])
        opening = _OPENING.search(text, end)


def _plan_in(found: dict[str, Any]) -> dict[str, Any] | None:
    if "steps" in found:
        return found
    inner = [found.get(key) for key in _WRAPPERS]
    return next((one for one in inner if isinstance(one, dict) and "steps" in one), None)


def create_simple_workflow(
    description: str,
    *,
    task_id: str | None = None,
    tool_name: str = "content_generator",
    tags: tuple[str, ...] = (),
) -> WorkflowSpec:
    """A workflow that asks the tool to do what the description says, or what it is given as `description` instead."""
    return WorkflowSpec(
        workflow_id=task_id or workflow_id_for(description),
        description=description,
        inputs=(WorkflowInput("description", default=description or None, description="what is to be done"),),
        outputs=(WorkflowOutput("result", "string", "what came of it", "steps.execute.result"),),
        steps=(
            WorkflowStep(
                "execute",
                StepType.LLM_CALL,
                description,
                tool_name=tool_name,
                prompt_template="{description}",
                input_mapping={"description": "inputs.description"},
                output_name="result",
            ),
        ),
        created_by=CREATED_BY,
        created_at=created_now(),
        tags=tags,
    )


def created_now() -> str:
    """This second, as workflows note it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def workflow_id_for(description: str, *, now: float | None = None) -> str:
    """A name made of the first sentence of a description and the second in which it was made."""
    begin = description.lower().split(".")[0][:LONGEST_SLUG]
    slug = re.sub(r"[^a-z0-9]+", "_", begin).strip("_")
    return f"{slug or 'workflow'}_{int(time.time() if now is None else now)}"


def build_from_text(description: str, overseer_output: str, *, task_id: str | None = None) -> WorkflowSpec:
    """The workflow in an overseer's answer.

    An answer without any JSON becomes a single step that does what the description says, tagged `text_based`. Raises
    `BadPlan` for JSON that is broken, that says no plan, or whose plan cannot run.
    """
    try:
        plan = find_plan(overseer_output)
    except SpecError as error:
        raise BadPlan(error.problems) from None
    if plan is None:
        return create_simple_workflow(description, task_id=task_id, tags=(TEXT_BASED,))
    return build_from_data(plan, description=description, task_id=task_id)


def build_from_json(
    text: str | bytes, *, description: str | None = None, task_id: str | None = None
) -> WorkflowSpec:
    """The workflow that a JSON document says. Raises `BadPlan` with everything that is wrong with it."""
    try:
        data = load_json(text, largest=LARGEST)
    except SpecError as error:
        raise BadPlan(error.problems) from None
    return build_from_data(data, description=description, task_id=task_id)


def build_from_data(
    data: Any,
    *,
    description: str | None = None,
    task_id: str | None = None,
    known_tools: Collection[str] | None = None,
) -> WorkflowSpec:
    """The workflow that a plan says, checked. Raises `BadPlan` with everything that is wrong with it.

    `task_id` and `description` take the place of what the plan says itself. A plan without a name gets one. With
    `known_tools` it may use only these, those that it carries, and those that are yet to be written.
    """
    if isinstance(data, dict):
        said = description or data.get("description")
        name = task_id or data.get("workflow_id") or workflow_id_for(said if isinstance(said, str) else "")
        data = {**data, "workflow_id": name, "description": said}
    try:
        reading = read_leniently(data)
    except SpecError as error:
        raise BadPlan(error.problems) from None
    problems = [*reading.problems, *check_spec(reading.spec, known_tools=known_tools)]
    if problems:
        raise BadPlan(problems)
    spec = reading.spec
    return replace(
        spec, created_by=spec.created_by or CREATED_BY, created_at=spec.created_at or created_now()
    )
