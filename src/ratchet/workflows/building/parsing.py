"""Builds workflows from what a model planned. A bad plan is an error that says why; it is never replaced by another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import load_json
from ratchet.flowkit.reader import read_leniently
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.workflows.building.answers import LARGEST, find_plan
from ratchet.workflows.building.errors import BadPlan
from ratchet.workflows.building.ids import workflow_id_for
from ratchet.workflows.building.simple import CREATED_BY, create_simple_workflow, created_now

TEXT_BASED = "text_based"


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
