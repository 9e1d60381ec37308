"""Workflows of small Python tools for tests of running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.flowkit.spec import (
    StepType,
    ToolDefinition,
    WorkflowInput,
    WorkflowOutput,
    WorkflowSpec,
    WorkflowStep,
)

DOUBLE = "def run(number):\n    return number * 2\n"
ADD = "def run(a, b):\n    return a + b\n"
FAIL = "def run(**values):\n    raise ValueError('no luck')\n"


def python(step_id: str, tool: str, **more: Any) -> WorkflowStep:
    return WorkflowStep(step_id, StepType.PYTHON_TOOL, tool_name=tool, **{"backoff_seconds": 0.0, **more})


def function(step_id: str, tool: str = "identity", **more: Any) -> WorkflowStep:
    return WorkflowStep(step_id, StepType.EXISTING_TOOL, tool_name=tool, **more)


def workflow(
    name: str, *steps: WorkflowStep, tools: Mapping[str, str] | None = None, **more: Any
) -> WorkflowSpec:
    """A workflow with Python tools inside it."""
    definitions = {
        tool: ToolDefinition(tool, tool_type="python", source_code=source)
        for tool, source in (tools or {}).items()
    }
    return WorkflowSpec(name, steps=steps, portable=bool(definitions), tool_definitions=definitions, **more)


def sums() -> WorkflowSpec:
    """A diamond: a number is doubled, used twice, and added up."""
    return workflow(
        "sums",
        python("double", "double", input_mapping={"number": "inputs.number"}),
        python("left", "double", input_mapping={"number": "steps.double.output"}),
        python("right", "add", input_mapping={"a": "steps.double.output", "b": 1}),
        python("sum", "add", input_mapping={"a": "steps.left.output", "b": "steps.right.output"}),
        tools={"double": DOUBLE, "add": ADD},
        inputs=(WorkflowInput("number", "number"),),
        outputs=(WorkflowOutput("sum", "number", source_reference="steps.sum.output"),),
    )
