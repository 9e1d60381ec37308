"""A workflow whose steps wait for each other without need, and other graphs of it."""

from __future__ import annotations

import json
from dataclasses import replace

from ratchet.flowkit.spec import StepType, WorkflowInput, WorkflowOutput, WorkflowSpec, WorkflowStep
from ratchet.flowkit.writer import write_spec
from tests.workflows.running.tools import ADD, DOUBLE, python, workflow

NAPPING = "import time\n\n\n" + DOUBLE.replace("    return", "    time.sleep(0.2)\n    return")


def _sum_of_two(*, waits: bool = True, second: str = "inputs.number") -> WorkflowSpec:
    return workflow(
        "sum-of-two",
        python("first", "double", input_mapping={"number": "inputs.number"}),
        python("second", "double", input_mapping={"number": second}, depends_on=("first",) if waits else ()),
        python("sum", "add", input_mapping={"a": "steps.first.output", "b": "steps.second.output"}),
        tools={"double": NAPPING, "add": ADD},
        inputs=(WorkflowInput("number", "integer"),),
        outputs=(WorkflowOutput("sum", "number", source_reference="steps.sum.output"),),
    )


CHAIN = _sum_of_two()
_AT_ONCE = _sum_of_two(waits=False)


def _with(*steps: WorkflowStep) -> WorkflowSpec:
    return replace(_AT_ONCE, steps=(*_AT_ONCE.steps, *steps))


GRAPHS = {
    "same": replace(CHAIN),
    "at once": _AT_ONCE,
    "once for both": replace(
        _AT_ONCE,
        steps=(
            _AT_ONCE.steps[0],
            python("sum", "add", input_mapping={"a": "steps.first.output", "b": "steps.first.output"}),
        ),
    ),
    # Twice the number is four times 0, and of nothing else.
    "leaves one out": replace(
        _AT_ONCE, steps=(_AT_ONCE.steps[0], python("sum", "double", input_mapping={"number": 0}))
    ),
    "asks a model": _with(WorkflowStep("more", prompt_template="Say something.")),
    "asks a person": _with(WorkflowStep("more", StepType.APPROVAL, description="Well?")),
    "another tool": _with(WorkflowStep("more", StepType.EXISTING_TOOL, tool_name="word_count")),
    "a file": _with(WorkflowStep("more", StepType.PYTHON_TOOL, tool_path="more.py")),
    "tools of its own": replace(
        _AT_ONCE,
        tool_definitions={
            **_AT_ONCE.tool_definitions,
            "double": replace(_AT_ONCE.tool_definitions["double"], source_code=DOUBLE),
        },
    ),
    "other outputs": replace(
        _AT_ONCE, outputs=(WorkflowOutput("more", source_reference="steps.sum.output"),)
    ),
}


def graph(name: str) -> str:
    return json.dumps(write_spec(GRAPHS[name]))
