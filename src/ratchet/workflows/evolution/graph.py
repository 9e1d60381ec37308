"""The graph of a tool that is a workflow: which steps there are, what they wait for, and what models are asked.

A variant may order, join, split and drop steps and ask in other words. It may call nothing that the version in use does
not call, so that trying it has no consequences that calling the tool has not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import load_json
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import StepType, WorkflowSpec, WorkflowStep
from ratchet.flowkit.validation import require_valid
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import StepStatus
from ratchet.ledger import Transaction
from ratchet.ledger.runs import get_run, latest_steps
from ratchet.ledger.tools import CallRow
from ratchet.tools.definition import Tool, ToolType, WorkflowBody

if TYPE_CHECKING:
    from ratchet.runtime import Runtime

GRAPH = "workflow.json"
_TRIED = frozenset({ToolType.PYTHON, ToolType.EXECUTABLE, ToolType.LLM, ToolType.WORKFLOW})
_MOST_RUNS, _MOST_ROWS = 10, 2_000
_LONGEST = 300


def graph_text(body: WorkflowBody) -> str:
    return json.dumps(write_spec(read_spec(body.spec)), indent=2, ensure_ascii=False) + "\n"


def same_graph(one: str, other: str) -> bool:
    try:
        return bool(write_spec(read_spec(load_json(one))) == write_spec(read_spec(load_json(other))))
    except SpecError:
        return False


def read_graph(body: WorkflowBody, text: str) -> WorkflowBody:
    """The workflow with another graph. Raises `SpecError` with everything for which it is no version of the tool."""
    before, after = read_spec(body.spec), read_spec(load_json(text))
    require_valid(after)
    problems = [
        f"its {what} must stay as it is"
        for what in ("workflow_id", "inputs", "tool_definitions")
        if getattr(before, what) != getattr(after, what)
    ]
    if {each.name for each in before.outputs} != {each.name for each in after.outputs}:
        problems.append("its outputs must have the names that they have")
    known = set(_reached(before))
    problems += [f"it may not use {kind} {name}" for kind, name in sorted(set(_reached(after)) - known)]
    if problems:
        raise SpecError(problems)
    return replace(body, spec=write_spec(after))


def _steps(spec: WorkflowSpec) -> Iterator[WorkflowStep]:
    for step in spec.steps:
        yield step
        if step.workflow_spec is not None:
            yield from _steps(step.workflow_spec)


def asks_person(spec: WorkflowSpec) -> bool:
    return any(step.step_type is StepType.APPROVAL for step in _steps(spec))


def _reached(spec: WorkflowSpec) -> Iterator[tuple[str, str]]:
    """Everything beyond itself that a workflow uses."""
    for step in _steps(spec):
        named = {
            "the tool": (step.tool_name, step.fallback_tool),
            "the file": (step.tool_path,),
            "the workflow": (step.workflow_path,),
            "the secret": step.secrets,
        }
        yield from ((kind, name) for kind, names in named.items() for name in names if name)
        if step.step_type is StepType.LLM_CALL:
            yield "a question to", "a model"
        if step.step_type is StepType.APPROVAL:
            yield "an answer of", "a person"
        if step.generate_tool:
            yield "a tool", "that is yet to be written"


@dataclass(frozen=True, slots=True)
class GraphTools:
    """What a workflow calls. `obstacle` says why it cannot be called again only to try a variant."""

    asks_models: bool
    obstacle: str | None = None


async def look_at_tools(runtime: Runtime, tool: Tool) -> GraphTools:
    """Raises `BadWorkflow` for one that could not run."""
    # What runs workflows knows of evolution.
    from ratchet.workflows.runs.preparation import fix

    assert tool.workflow is not None
    spec = read_spec(tool.workflow.spec)
    whole, used = await asyncio.to_thread(fix, runtime, spec, folder=tool.folder)
    asks = any(step.step_type is StepType.LLM_CALL for step in _steps(whole))
    obstacles = [why for each in used.values() if (why := _obstacle(each.tool)) is not None]
    if asks_person(whole):
        obstacles.append("it asks a person")
    asks = asks or any(each.tool.type is ToolType.LLM for each in used.values())
    return GraphTools(asks, "; ".join(obstacles) or None)


def _obstacle(tool: Tool) -> str | None:
    if tool.function is not None and tool.function.extra.get("pure"):
        return None
    if tool.type not in _TRIED:
        return f"it calls {tool.id}, and calling a tool of type {tool.type} again may have consequences"
    if tool.network:
        return f"it calls {tool.id}, which uses the network"
    return f"it calls {tool.id}, which is given secrets" if tool.secrets else None


def graph_report(tx: Transaction, tool: Tool, calls: Sequence[CallRow]) -> list[str]:
    """Where the time of its last calls in runs went, the critical path first, and which step failed."""
    # What makes a profile knows of evolution.
    from ratchet.workflows.profile import profile_rows

    if tool.workflow is None:
        return []
    spec = read_spec(tool.workflow.spec)
    places = dict.fromkeys((each.run_id, each.step) for each in calls if each.run_id and each.step)
    runs, rows, failures = [], [], dict[str, str]()
    for run_id, step in list(places)[:_MOST_RUNS]:
        prefix = f"{step}/"
        found = [each for each in latest_steps(tx, run_id, limit=_MOST_ROWS) if each.name.startswith(prefix)]
        inside = [replace(each, name=each.name.removeprefix(prefix)) for each in found]
        for each in inside:
            if each.status is StepStatus.FAILED:
                failures.setdefault(each.name, str((each.result or {}).get("error"))[:_LONGEST])
        if inside:
            runs.append(get_run(tx, run_id))
            rows.append(inside)
    if not runs:
        return []
    profile = profile_rows(runs, spec, rows)
    lines = [f"critical path: {' → '.join(profile.critical_path)}, {profile.path_ms:.0f} ms"]
    lines += [
        f"step {each.step}: {each.wall_ms:.0f} ms, {each.path_share:.0%} of the critical path, "
        f"{each.cost_share:.0%} of the cost, fails in {each.failed:.0%} of its calls"
        for each in sorted(profile.steps, key=lambda each: -each.path_share)
    ]
    return [*lines, *(f"step {name} failed: {error}" for name, error in failures.items())]


def declared_inputs(body: WorkflowBody) -> dict[str, Any]:
    """The inputs of a workflow as a schema."""
    inputs = read_spec(body.spec).inputs
    return {
        "type": "object",
        "properties": {each.name: {"type": each.type} for each in inputs},
        "required": [each.name for each in inputs if each.required and each.default is None],
    }
