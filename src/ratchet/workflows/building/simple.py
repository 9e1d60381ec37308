"""The smallest workflow: one call of a model."""

from __future__ import annotations

from datetime import UTC, datetime

from ratchet.flowkit.spec import StepType, WorkflowInput, WorkflowOutput, WorkflowSpec, WorkflowStep
from ratchet.workflows.building.ids import workflow_id_for

CREATED_BY = "ratchet"


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
