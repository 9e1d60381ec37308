"""Reads one step of a workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .dialects import OldNames
from .fields import Fields, shown
from .spec import OperationType, StepType, WorkflowSpec, WorkflowStep

Nested = Callable[[Mapping[str, Any], str, str], WorkflowSpec | None]
"""Reads a workflow inside a step: the object, where it stands, and the name that it has if it names none itself."""


def read_step(
    data: Any, number: int, old_names: OldNames, where: str, problems: list[str], nested: Nested
) -> WorkflowStep | None:
    """The step that a JSON object says; nothing if it cannot be told which one it is."""
    if not isinstance(data, Mapping):
        problems.append(f"{where}step {number} must be an object, not {shown(data)}")
        return None
    here = f"{where}step {data.get('step_id') or number}: "
    fields = Fields(data, here, problems)
    step_id = fields.text("step_id")
    if step_id is None:
        if not fields.has("step_id"):
            fields.missing("step_id")
        return None
    inner = fields.mapping("workflow_spec")
    return WorkflowStep(
        step_id=step_id,
        step_type=_step_type(fields),
        description=fields.text("description") or "",
        tool_name=fields.text("tool"),
        prompt_template=fields.text("prompt_template"),
        tool_path=fields.text("tool_path"),
        generate_tool=fields.flag("generate_tool", False),
        operation_type=fields.choice("operation_type", OperationType),
        workflow_path=fields.text("workflow_path"),
        workflow_spec=nested(inner, here, step_id) if inner else None,
        input_mapping=_input_mapping(fields, old_names),
        output_name=_output_name(fields),
        timeout=fields.number("timeout", 300.0),
        retry_on_failure=fields.flag("retry_on_failure", False),
        max_retries=fields.whole("max_retries", 3),
        parallel_group=_group(fields),
        depends_on=_depends_on(fields),
        when=fields.text("when"),
        for_each=fields.any("for_each"),
        fallback_tool=fields.text("fallback_tool"),
        backoff_seconds=fields.number("backoff_seconds", 0.5),
        cache=fields.flag("cache", True),
        extra=fields.rest(),
    )


def _step_type(fields: Fields) -> StepType:
    """Without a `type` a step calls a model; an old one that only has a tool and its `input` calls the tool."""
    given = fields.choice("type", StepType)
    if given is not None:
        return given
    old = fields.has("input") and fields.has("tool") and not fields.has("prompt_template")
    return StepType.EXISTING_TOOL if old else StepType.LLM_CALL


def _input_mapping(fields: Fields, old_names: OldNames) -> dict[str, Any]:
    if fields.has("input_mapping"):
        value = fields.any("input_mapping")
        if isinstance(value, list | tuple) and all(_is_pair(one) for one in value):
            return {one["name"]: one.get("value") for one in value}
        return fields.mapping("input_mapping")
    for key in ("input", "input_parameters"):
        old = fields.keep(key)
        if isinstance(old, Mapping):
            return {name: old_names.translate(inner) for name, inner in old.items()}
        if old is not None:
            fields.wrong(key, "an object", old)
    return {}


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("name"), str)
        and value.keys() <= {"name", "value"}
    )


def _output_name(fields: Fields) -> str:
    given = fields.text("output_name")
    old = fields.keep("output_key")
    return given or (old if isinstance(old, str) and old else "output")


def _depends_on(fields: Fields) -> tuple[str, ...]:
    given = fields.texts("depends_on")
    before = fields.keep("input_from_step")
    before = [before] if isinstance(before, str) else before if isinstance(before, list) else []
    return tuple(dict.fromkeys((*given, *(one for one in before if isinstance(one, str) and one))))


def _group(fields: Fields) -> int | str | None:
    value = fields.any("parallel_group")
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    fields.wrong("parallel_group", "a whole number or a name", value)
    return None
