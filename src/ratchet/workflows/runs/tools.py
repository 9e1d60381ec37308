"""The tools behind the names that a workflow uses, found before anything is recorded or run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.graph import own_names
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.references import Reference, find_references, resolve
from ratchet.flowkit.spec import StepType, ToolDefinition, WorkflowSpec, WorkflowStep
from ratchet.flowkit.validation import check_spec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import RatchetError
from ratchet.tools.definition import PythonBody, Tool, ToolType, tool_from_definition
from ratchet.tools.fit import misfit
from ratchet.tools.registry import Toolbox, ToolVersion, open_toolbox
from ratchet.workflows.files import BadWorkflow
from ratchet.workflows.saved import UNWRITTEN, WorkflowPlace, load_inner

_DEEPEST = 10
_LONGEST_SOURCE = 1_048_576


def find_tools(
    place: WorkflowPlace, spec: WorkflowSpec, *, folder: Path | None = None
) -> tuple[WorkflowSpec, FoundTools]:
    """The whole workflow and what it calls; nothing is recorded. Raises `BadWorkflow` with all that is wrong."""
    try:
        whole = _with_inner(place, spec, folder, depth=1)
        _require_sound(whole)
        folders = () if folder is None else (folder,)
        opened = open_toolbox(place.ledger, place.settings, place.home, folders=folders)
        with contextlib.closing(opened) as toolbox:
            complete = _with_workflow_tools(place, toolbox, whole, depth=1)
            if complete != whole:
                _require_sound(complete)
            found = FoundTools(toolbox, folder)
            found.find_all(complete)
    except SpecError as error:
        raise BadWorkflow(error.problems) from error
    if found.problems:
        raise BadWorkflow(found.problems)
    return complete, found


def _require_sound(spec: WorkflowSpec) -> None:
    problems = check_spec(spec)
    if problems:
        raise BadWorkflow(problems)


def _with_inner(
    runtime: WorkflowPlace, spec: WorkflowSpec, folder: Path | None, *, depth: int
) -> WorkflowSpec:
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
    runtime: WorkflowPlace, toolbox: Toolbox, spec: WorkflowSpec, *, depth: int
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


class FoundTools:
    """Finds the tool behind each name that a workflow uses, and says what is wrong with those that cannot be used."""

    def __init__(self, toolbox: Toolbox, folder: Path | None) -> None:
        self._toolbox = toolbox
        self._folder = folder
        self.problems: list[str] = []
        self._parts: dict[int, dict[str, Any]] = {}
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
            self._check_constants(spec, step, step.tool_name)
        elif step.generate_tool:
            self.problems.append(UNWRITTEN.format(step.step_id))
        elif step.step_type is not StepType.LLM_CALL:
            self.problems.append(f"step {step.step_id}: names no tool")
        if step.fallback_tool:
            self._find(spec, step, step.fallback_tool)

    def _check_constants(self, spec: WorkflowSpec, step: WorkflowStep, name: str) -> None:
        """What a step writes out itself is known before a run: it must be of the type that the tool takes."""
        key = (spec.workflow_id, name)
        tool = self.installed[key].tool if key in self.installed else self.carried.get(key)
        if tool is None or step.workflow_spec is not None:
            return
        schema = tool.input_schema or {}
        # What else a schema says is about values that only a run has.
        part = self._parts.setdefault(
            id(tool),
            {"type": "object"}
            | {each: schema[each] for each in ("$defs", "definitions", "properties") if each in schema},
        )
        own = own_names(step)
        constants = {
            each: resolve(value, _unknown, own=own)
            for each, value in step.input_mapping.items()
            if not find_references(value, own=own)
        }
        wrong = misfit(constants, part)
        if wrong is not None:
            self.problems.append(f"step {step.step_id}: the inputs of tool {name} do not fit: {wrong}")

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


def _unknown(reference: Reference) -> NoReturn:
    raise AssertionError(f"{reference} is no constant")


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
        secrets=step.secrets,
    )
