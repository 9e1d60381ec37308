"""Making a workflow ready to run: every workflow inside it in its place, every tool fixed to a version."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import StepType, ToolDefinition, WorkflowSpec, WorkflowStep
from ratchet.flowkit.validation import check_inputs, check_spec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.tools import (
    Source,
    add_tool,
    add_version,
    find_tool,
    get_tool,
    get_version,
    note_source,
    promote_version,
)
from ratchet.runtime import Runtime
from ratchet.tools.definition import PythonBody, Tool, ToolType, folder_of, read_tool, tool_from_definition
from ratchet.tools.registry import Toolbox, ToolVersion, open_toolbox
from ratchet.workflows.files import BadWorkflow
from ratchet.workflows.runs.plan import FixedTool, RunPlan
from ratchet.workflows.saved import load_inner

_DEEPEST = 10
_LONGEST_SOURCE = 1_048_576


def adopt(tx: Transaction, workflow_id: str, name: str, tool: Tool) -> FixedTool:
    """The version of the tool to be used.

    That is the one in the workflow when it is new or has changed there; otherwise the current one, which may be a
    better one that came of it.
    """
    folder = folder_of(workflow_id)
    source = Source(folder, hash=tool.hash)
    tx.lock_keys(f"tool:{folder}:{name}")
    row = find_tool(tx, name, folder=folder)
    if row is None or row.source_hash != tool.hash or row.called_id is None:
        row = add_tool(tx, name, source, folder=folder)
        version = add_version(tx, row, tool.data, tool.hash, origin="workflow", parent_id=row.current_id)
        if version.id != row.current_id:
            promote_version(tx, row, version, expected=row.current_id, reason="as the workflow has it")
        note_source(tx, row, source)
        row = get_tool(tx, name, folder=folder)
    assert row.called_id is not None
    called = get_version(tx, row.called_id)
    return FixedTool(read_tool(called.definition, folder=None, id=name, stored=True), row.id, called.id)


def prepare(
    runtime: Runtime,
    spec: WorkflowSpec,
    inputs: Mapping[str, Any],
    *,
    folder: Path | None = None,
    cached: bool = True,
    spread: bool | None = None,
) -> RunPlan:
    """The plan of a run that has not begun. Raises `BadWorkflow` with everything that keeps it from running.

    `folder` is where the paths of the workflow start, and where its own tools lie.
    """
    try:
        values = check_inputs(spec, inputs)
    except SpecError as error:
        raise BadWorkflow(error.problems) from error
    whole, tools = fix(runtime, spec, folder=folder)
    settings = runtime.settings
    return RunPlan(
        spec=whole,
        inputs=values,
        tools=tools,
        folder=folder,
        cached=cached,
        spread=settings.workflows.spread if spread is None else spread,
        model=settings.workflows.llm,
    )


def fix(
    runtime: Runtime, spec: WorkflowSpec, *, folder: Path | None = None
) -> tuple[WorkflowSpec, dict[tuple[str, str], FixedTool]]:
    """The whole workflow, and the version of each tool by the workflow and the name that uses it.

    Raises `BadWorkflow`.
    """
    try:
        whole = _with_inner(runtime, spec, folder, depth=1)
        _require_sound(whole)
        folders = () if folder is None else (folder,)
        opened = open_toolbox(runtime.ledger, runtime.settings, runtime.home, folders=folders)
        with contextlib.closing(opened) as toolbox:
            complete = _with_workflow_tools(runtime, toolbox, whole, depth=1)
            if complete != whole:
                _require_sound(complete)
            found = _Tools(toolbox, folder)
            found.find_all(complete)
    except SpecError as error:
        raise BadWorkflow(error.problems) from error
    if found.problems:
        raise BadWorkflow(found.problems)
    return complete, _fixed(runtime, found)


def _require_sound(spec: WorkflowSpec) -> None:
    problems = check_spec(spec)
    if problems:
        raise BadWorkflow(problems)


def _fixed(runtime: Runtime, found: _Tools) -> dict[tuple[str, str], FixedTool]:
    fixed = {
        key: FixedTool(version.tool, version.tool_id, version.id) for key, version in found.installed.items()
    }
    if found.carried:
        with runtime.ledger.write(actor="ratchet") as tx:
            for (workflow_id, name), tool in found.carried.items():
                fixed[workflow_id, name] = adopt(tx, workflow_id, name, tool)
    return fixed


def _with_inner(runtime: Runtime, spec: WorkflowSpec, folder: Path | None, *, depth: int) -> WorkflowSpec:
    """The workflow with every other one that it names put in its place."""
    _require_shallow(spec, depth)

    def inner(step: WorkflowStep) -> WorkflowStep:
        if step.step_type is StepType.PYTHON_TOOL and step.tool_path and not step.tool_name:
            return replace(step, tool_name=step.step_id)
        if step.step_type is not StepType.SUB_WORKFLOW:
            return step
        found, place = step.workflow_spec, folder
        if found is None and step.workflow_path:
            found, place = load_inner(runtime, step.workflow_path, folder)
        if found is None:
            return step
        return replace(
            step, workflow_path=None, workflow_spec=_with_inner(runtime, found, place, depth=depth + 1)
        )

    return replace(spec, steps=tuple(map(inner, spec.steps)))


def _require_shallow(spec: WorkflowSpec, depth: int) -> None:
    if depth > _DEEPEST:
        raise BadWorkflow(
            [f"workflows lie more than {_DEEPEST} deep inside one another in {spec.workflow_id}"]
        )


def _with_workflow_tools(
    runtime: Runtime, toolbox: Toolbox, spec: WorkflowSpec, *, depth: int
) -> WorkflowSpec:
    """Steps that call a tool which is itself a workflow hold that workflow, so that its steps are durable too. They
    still name the tool, whose bounds count."""
    _require_shallow(spec, depth)
    named = {step.tool_name for step in spec.steps if step.step_type is StepType.EXISTING_TOOL}
    workflows = {name: found for name in named if name and (found := _workflow_of(toolbox, spec, name))}

    def opened(step: WorkflowStep) -> WorkflowStep:
        found = step.workflow_spec
        if found is None and step.step_type is StepType.EXISTING_TOOL and step.tool_name in workflows:
            # It has no folder: it counts as it was when its tool was defined.
            found = _with_inner(runtime, workflows[step.tool_name], None, depth=depth + 1)
        if found is None:
            return step
        whole = _with_workflow_tools(runtime, toolbox, found, depth=depth + 1)
        if step.step_type is StepType.EXISTING_TOOL:
            return replace(step, workflow_spec=whole)
        return replace(step, step_type=StepType.SUB_WORKFLOW, workflow_spec=whole, tool_name=None)

    return replace(spec, steps=tuple(map(opened, spec.steps)))


def _workflow_of(toolbox: Toolbox, spec: WorkflowSpec, name: str) -> WorkflowSpec | None:
    carried = spec.tool_definitions.get(name)
    try:
        tool = toolbox.get(name).tool if carried is None else tool_from_definition(carried)
    except RatchetError:
        # Said of each step that uses it, later.
        return None
    return None if tool.workflow is None else read_spec(tool.workflow.spec)


class _Tools:
    """Finds the tool behind each name that a workflow uses, and says what is wrong with those that cannot be used."""

    def __init__(self, toolbox: Toolbox, folder: Path | None) -> None:
        self._toolbox = toolbox
        self._folder = folder
        self.problems: list[str] = []
        self.installed: dict[tuple[str, str], ToolVersion] = {}
        self.carried: dict[tuple[str, str], Tool] = {}
        """Those that the workflow brings with it, embedded or in files beside it."""

    def find_all(self, spec: WorkflowSpec) -> None:
        for each in _all_workflows(spec):
            for step in each.steps:
                self._find_for(each, step)

    def _find_for(self, spec: WorkflowSpec, step: WorkflowStep) -> None:
        if step.step_type is StepType.APPROVAL:
            return
        if step.step_type is StepType.SUB_WORKFLOW:
            # It calls nothing itself, but another tool may stand in for it.
            pass
        elif step.tool_path is not None and step.step_type is StepType.PYTHON_TOOL:
            self._carry(spec, step, step.tool_name or step.step_id, _from_file(step, self._folder))
        elif step.tool_name:
            self._find(spec, step, step.tool_name)
        elif step.generate_tool:
            self.problems.append(f"step {step.step_id}: its tool has not been written yet")
        elif step.step_type is not StepType.LLM_CALL:
            self.problems.append(f"step {step.step_id}: names no tool")
        if step.fallback_tool:
            self._find(spec, step, step.fallback_tool)

    def _find(self, spec: WorkflowSpec, step: WorkflowStep, name: str) -> None:
        key = (spec.workflow_id, name)
        if key in self.installed:
            return
        definition = spec.tool_definitions.get(name)
        try:
            if definition is not None:
                self._carry(spec, step, name, tool_from_definition(_with_workflow(definition, step)))
                return
            found = self._toolbox.get(name)
        except RatchetError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self.problems.append(f"step {step.step_id}: {error}{hint}")
            return
        self.installed[key] = found
        self._check(spec, step, found.tool)

    def _carry(self, spec: WorkflowSpec, step: WorkflowStep, name: str, tool: Tool | str) -> None:
        key = (spec.workflow_id, name)
        if isinstance(tool, str):
            self.problems.append(f"step {step.step_id}: {tool}")
        elif key not in self.carried:
            self.carried[key] = tool
            self._check(spec, step, tool)
        elif self.carried[key].hash != tool.hash:
            self.problems.append(
                f"step {step.step_id}: two workflows called {spec.workflow_id} bring different tools {name}"
            )

    def _check(self, spec: WorkflowSpec, step: WorkflowStep, tool: Tool) -> None:
        if tool.refusal:
            self.problems.append(f"step {step.step_id}: {tool.refusal}")
        if tool.fallback_tool:
            self._find(spec, step, tool.fallback_tool)


def _with_workflow(definition: ToolDefinition, step: WorkflowStep) -> ToolDefinition:
    """A tool that is the workflow which its step holds has it for its body."""
    if definition.tool_type != ToolType.WORKFLOW or step.workflow_spec is None:
        return definition
    body = {"spec": write_spec(step.workflow_spec)}
    return replace(definition, extra={**definition.extra, "workflow": body})


def _all_workflows(spec: WorkflowSpec) -> Iterator[WorkflowSpec]:
    waiting = [spec]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(step.workflow_spec for step in each.steps if step.workflow_spec is not None)


def _from_file(step: WorkflowStep, folder: Path | None) -> Tool | str:
    """The tool in the file that a step names, or why there is none. The file must lie beside the workflow or below."""
    if folder is None:
        return f"{step.tool_path} lies beside the workflow, which has no folder here"
    path = (folder / (step.tool_path or "")).resolve()
    if not path.is_relative_to(folder.resolve()):
        return f"{step.tool_path} lies outside of the workflow's folder"
    try:
        if path.stat().st_size > _LONGEST_SOURCE:
            return f"{step.tool_path} is longer than {_LONGEST_SOURCE} bytes"
        source = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return f"{step.tool_path} cannot be read: {error}"
    return Tool(
        id=step.tool_name or step.step_id,
        type=ToolType.PYTHON,
        description=step.description,
        python=PythonBody(source),
    )
