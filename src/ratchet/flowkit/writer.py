"""Writes a workflow as JSON. What it writes, `reader` reads as the same workflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from .spec import Repeat, ToolDefinition, WorkflowInput, WorkflowOutput, WorkflowSpec, WorkflowStep

# What a field is called in a file, where it is not its own name.
_KEYS = {"step_type": "type", "tool_type": "type", "tool_name": "tool"}


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
    retries = {"max_retries"} if step.retry_on_failure else set()
    return _unusual(step, {"step_type", "description", "input_mapping", "output_name", *retries})


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    return _unusual(tool, {"name", "description", "tool_type"})


def _unusual(part: WorkflowStep | ToolDefinition, always: set[str]) -> dict[str, Any]:
    """What is not as it would be anyway, in the order of the fields, and what is always written."""
    written = {}
    for each in fields(part):
        value = getattr(part, each.name)
        if each.name != "extra" and (each.name in always or value != each.default):
            written[_KEYS.get(each.name, each.name)] = _plain(value)
    return _with(part.extra, written)


def _plain(value: Any) -> Any:
    if isinstance(value, WorkflowSpec):
        return write_spec(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Repeat):
        kept = {each.name: getattr(value, each.name) for each in fields(value)}
        usual = {each.name: each.default for each in fields(value)}
        return {key: _plain(each) for key, each in kept.items() if each != usual[key]}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, float):
        # Whole numbers as people write them: 60, not 60.0.
        return int(value) if value.is_integer() else value
    return value.value if isinstance(value, StrEnum) else value


def _unless(usual: Any, /, **values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value != usual}


def _with(extra: Mapping[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    return written | {key: value for key, value in extra.items() if key not in written}
