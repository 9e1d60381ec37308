"""What is wrong with the inputs, outputs and tools that a workflow declares."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .inputs import TYPES, value_problems
from .naming import name_problem
from .patterns import pattern_problem
from .references import read_reference
from .scope import Scope
from .spec import ToolDefinition, WorkflowInput, WorkflowOutput

LONGEST_SECONDS = 31 * 24 * 3600.0


def input_problems(declared: WorkflowInput) -> Iterator[str]:
    where = f"input {declared.name}: "
    problem = name_problem("name", declared.name)
    if problem:
        yield f"an input: {problem}"
    if declared.type not in TYPES:
        yield f"{where}type must be one of {', '.join(TYPES)}, not {declared.type!r}"
        return
    pattern = declared.extra.get("pattern")
    slip = pattern_problem(pattern) if isinstance(pattern, str) else None
    if slip:
        yield f"{where}the pattern {pattern!r} {slip}"
    elif declared.default is not None:
        for problem in value_problems(declared, declared.default):
            yield f"{where}its default does not fit: {problem}"


def output_problems(output: WorkflowOutput, scope: Scope) -> Iterator[str]:
    where = f"output {output.name}: "
    problem = name_problem("name", output.name)
    if problem:
        yield f"an output: {problem}"
    if output.type and output.type not in TYPES:
        yield f"{where}type must be one of {', '.join(TYPES)}, not {output.type!r}"
    reference = read_reference(output.source_reference)
    if reference is None:
        yield (
            f"{where}source_reference must be steps.<step_id>.<output_name> or inputs.<name>,"
            f" not {output.source_reference!r}"
        )
        return
    for problem in scope.reference_problems(reference):
        yield where + problem


def tool_problems(name: str, tool: ToolDefinition, scope: Scope) -> Iterator[str]:
    where = f"tool {name}: "
    if not name or len(name) > 200:
        yield f"{where}a tool needs a name of at most 200 characters"
    if tool.tool_id != name:
        yield f"{where}its tool_id is {tool.tool_id!r}"
    if tool.tool_type == "python" and tool.source_code is None:
        yield f"{where}a python tool that travels with a workflow needs its source_code"
    if not 0 < tool.timeout <= LONGEST_SECONDS:
        yield f"{where}timeout must be between 0 and {LONGEST_SECONDS:.0f} seconds, not {tool.timeout:g}"
    if not math.isfinite(tool.temperature) or tool.temperature < 0:
        yield f"{where}temperature must not be negative, but is {tool.temperature:g}"
    if tool.fallback_tool is not None:
        for problem in scope.tool_problems(tool.fallback_tool):
            yield where + problem
