"""Writes a workflow as JSON. What it writes, `reader` reads as the same workflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .spec import ToolDefinition, WorkflowInput, WorkflowOutput, WorkflowSpec, WorkflowStep


def write_text(spec: WorkflowSpec) -> str:
    """The workflow as a JSON document for a file."""
    return json.dumps(write_spec(spec), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_spec(spec: WorkflowSpec) -> dict[str, Any]:
    """The workflow as a JSON object. Steps and tools leave out what is as it would be anyway."""
    written: dict[str, Any] = {
        "workflow_id": spec.workflow_id,
        "version": spec.version,
        "description": spec.description,
        "created_by": spec.created_by,
        "created_at": spec.created_at,
        "tags": list(spec.tags),
        "portable": spec.portable,
        "inputs": {each.name: _input(each) for each in spec.inputs},
        "outputs": {each.name: _output(each) for each in spec.outputs},
        "steps": [_step(each) for each in spec.steps],
    }
    if spec.tool_definitions:
        written["tools"] = {name: _tool(each) for name, each in spec.tool_definitions.items()}
    listed = {
        "llm_tools": list(spec.required_tools),
        "python_tools": list(spec.python_tools),
        "pip_packages": [dict(each) for each in spec.pip_packages],
        **spec.extra.get("dependencies", {}),
    }
    # A workflow that carries its tools needs no list of them, but one that it has is not thrown away.
    if not (spec.portable and spec.tool_definitions) or any(listed.values()):
        written["dependencies"] = listed
    return _with(spec.extra, written)


def _input(each: WorkflowInput) -> dict[str, Any]:
    written = {
        "type": each.type,
        "required": each.required,
        **_unless(None, default=each.default),
        "description": each.description,
    }
    return _with(each.extra, written)


def _output(each: WorkflowOutput) -> dict[str, Any]:
    written = _unless(
        "", type=each.type, description=each.description, source_reference=each.source_reference
    )
    return _with(each.extra, written)


def _step(step: WorkflowStep) -> dict[str, Any]:
    written = {
        "step_id": step.step_id,
        "type": step.step_type.value,
        "description": step.description,
        **_unless(None, tool=step.tool_name, prompt_template=step.prompt_template, tool_path=step.tool_path),
        **_unless(False, generate_tool=step.generate_tool),
        **_unless(None, operation_type=step.operation_type and step.operation_type.value),
        **_unless(None, workflow_path=step.workflow_path),
        **_unless(None, workflow_spec=step.workflow_spec and write_spec(step.workflow_spec)),
        "input_mapping": dict(step.input_mapping),
        "output_name": step.output_name,
        **_unless(300, timeout=_number(step.timeout)),
        **_unless(False, retry_on_failure=step.retry_on_failure),
        **_unless(None if step.retry_on_failure else 3, max_retries=step.max_retries),
        **_unless(None, parallel_group=step.parallel_group),
        **_unless([], depends_on=list(step.depends_on)),
        **_unless(None, when=step.when, for_each=step.for_each, fallback_tool=step.fallback_tool),
        **_unless(0.5, backoff_seconds=_number(step.backoff_seconds)),
        **_unless(True, cache=step.cache),
    }
    return _with(step.extra, written)


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    written = {
        "tool_id": tool.tool_id,
        "name": tool.name,
        "description": tool.description,
        "type": tool.tool_type,
        **_unless(None, model=tool.model, system_prompt=tool.system_prompt),
        **_unless(0.7, temperature=_number(tool.temperature)),
        **_unless(None, endpoint=tool.endpoint, source_code=tool.source_code),
        **_unless([], requirements=list(tool.requirements)),
        **_unless(None, api_spec=tool.api_spec),
        **_unless(False, retry_on_failure=tool.retry_on_failure),
        **_unless(300, timeout=_number(tool.timeout)),
        **_unless(None, fallback_tool=tool.fallback_tool),
    }
    return _with(tool.extra, written)


def _unless(usual: Any, /, **values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value != usual}


def _with(extra: Mapping[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    return written | {key: value for key, value in extra.items() if key not in written}


def _number(value: float) -> float | int:
    """Whole numbers as people write them: 60, not 60.0."""
    return int(value) if float(value).is_integer() else value
