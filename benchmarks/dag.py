"""Workflows that do nothing: layers of steps that return what they are given, and a diamond whose branches differ."""

from __future__ import annotations

from ratchet.flowkit.spec import (
    StepType,
    ToolDefinition,
    WorkflowInput,
    WorkflowOutput,
    WorkflowSpec,
    WorkflowStep,
)

# Seconds of each step of three branches: the longest path has 1.8, waves would add up to 4.2.
BRANCHES = ((1.4, 0.2, 0.2), (0.2, 1.4, 0.2), (0.2, 0.2, 1.4))
LONGEST_SECONDS = max(map(sum, BRANCHES))
IN_WAVES_SECONDS = sum(map(max, zip(*BRANCHES, strict=True)))
# As long as a person's service takes, and a model's answer.
WAIT_SECONDS = 5.0
_SLEEP = "import time\n\n\ndef run(seconds):\n    time.sleep(seconds)\n    return seconds\n"


def layered(width: int, depth: int) -> WorkflowSpec:
    """A step takes the value of the one above it, and waits for that one's neighbour as well."""
    steps = [
        WorkflowStep(
            f"s{layer}_{column}",
            StepType.EXISTING_TOOL,
            tool_name="identity",
            input_mapping={"value": _source(layer, column)},
            depends_on=() if layer == 0 else (f"s{layer - 1}_{(column + 1) % width}",),
        )
        for layer in range(depth)
        for column in range(width)
    ]
    return WorkflowSpec(
        f"layered_{width}x{depth}",
        inputs=tuple(WorkflowInput(f"column_{column}", "number") for column in range(width)),
        outputs=tuple(
            WorkflowOutput(f"column_{column}", source_reference=f"steps.s{depth - 1}_{column}.output")
            for column in range(width)
        ),
        steps=tuple(steps),
    )


def diamond() -> WorkflowSpec:
    """Branches of sandboxed processes that sleep, between a step that they all need and one that needs them all."""
    steps = [_sleeping("first", 0.0)]
    for branch, lengths in enumerate(BRANCHES):
        for place, seconds in enumerate(lengths):
            before = f"b{branch}_{place - 1}" if place else "first"
            steps.append(_sleeping(f"b{branch}_{place}", seconds, before))
    last = [f"b{branch}_{len(lengths) - 1}" for branch, lengths in enumerate(BRANCHES)]
    steps.append(_sleeping("last", 0.0, *last))
    tool = ToolDefinition("sleep", tool_type="python", source_code=_SLEEP)
    return WorkflowSpec("diamond", portable=True, steps=tuple(steps), tool_definitions={"sleep": tool})


def waiting(count: int) -> WorkflowSpec:
    """Steps in sandboxed processes that do nothing but wait, all at once."""
    tool = ToolDefinition("sleep", tool_type="python", source_code=_SLEEP)
    steps = tuple(_sleeping(f"w{number}", WAIT_SECONDS) for number in range(count))
    return WorkflowSpec(f"waiting_{count}", portable=True, steps=steps, tool_definitions={"sleep": tool})


def _source(layer: int, column: int) -> str:
    return f"inputs.column_{column}" if layer == 0 else f"steps.s{layer - 1}_{column}.output"


def _sleeping(name: str, seconds: float, *needs: str) -> WorkflowStep:
    return WorkflowStep(
        name,
        StepType.PYTHON_TOOL,
        tool_name="sleep",
        input_mapping={"seconds": seconds},
        depends_on=needs,
        cache=False,
    )
