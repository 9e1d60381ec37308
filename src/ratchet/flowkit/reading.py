"""Reads a workflow from JSON, in the form that `writing` makes and in the older ones that are around."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .dialects import OldNames
from .errors import SpecError
from .fields import Fields, shown
from .jsontext import load_json, require_json
from .problems import trimmed
from .spec import ToolDefinition, WorkflowInput, WorkflowOutput, WorkflowSpec
from .step_reading import read_step

DEEPEST = 10
"""How many workflows may lie inside one another."""


@dataclass(frozen=True)
class Reading:
    """What could be read, and what could not. With problems, `spec` is for finding further ones only."""

    spec: WorkflowSpec
    problems: list[str]


def read_text(text: str | bytes) -> WorkflowSpec:
    """The workflow of a JSON document. Raises `SpecError` with everything that cannot be read."""
    return read_spec(load_json(text))


def read_spec(data: Any) -> WorkflowSpec:
    """The workflow that a JSON object says. Raises `SpecError` with everything that cannot be read."""
    reading = read_leniently(data)
    if reading.problems:
        raise SpecError(reading.problems)
    return reading.spec


def read_leniently(data: Any) -> Reading:
    """As much of a workflow as can be read. Raises `SpecError` only for what is no JSON object at all."""
    require_json(data)
    if not isinstance(data, Mapping):
        raise SpecError([f"a workflow is a JSON object, not {shown(data)}"])
    problems: list[str] = []
    spec = _workflow(data, "", problems, depth=1)
    return Reading(spec, trimmed(problems))


def _workflow(
    data: Mapping[str, Any], where: str, problems: list[str], *, depth: int, name: str | None = None
) -> WorkflowSpec:
    fields = Fields(data, where, problems)
    old_inputs = not fields.has("inputs") and isinstance(fields.keep("input_parameters"), Mapping | list)
    inputs = _named(fields, "inputs", "type", value=fields.keep("input_parameters") if old_inputs else None)
    steps = fields.any("steps")
    if not isinstance(steps, list | tuple):
        if steps is not None:
            fields.wrong("steps", "a list", steps)
        steps = []
    listed = Fields(fields.mapping("dependencies"), f"{where}dependencies: ", problems)
    old_names = OldNames(inputs, list(steps))

    def nested(data: Mapping[str, Any], here: str, name: str) -> WorkflowSpec | None:
        if depth < DEEPEST:
            return _workflow(data, here, problems, depth=depth + 1, name=name)
        problems.append(f"{here}workflows may lie at most {DEEPEST} deep inside one another")
        return None

    workflow_id = fields.text("workflow_id") or name
    if workflow_id is None:
        fields.missing("workflow_id")
    spec = WorkflowSpec(
        workflow_id=workflow_id or "",
        description=fields.text("description") or "",
        version=fields.text("version") or "1.0.0",
        portable=fields.flag("portable", False),
        inputs=tuple(_input(name, one, where, problems) for name, one in inputs.items()),
        outputs=tuple(
            _output(name, one, where, problems)
            for name, one in _named(fields, "outputs", "source_reference").items()
        ),
        steps=tuple(
            step
            for number, one in enumerate(steps, start=1)
            if (step := read_step(one, number, old_names, where, problems, nested)) is not None
        ),
        created_by=fields.text("created_by") or "",
        created_at=fields.text("created_at") or "",
        tags=fields.texts("tags"),
        required_tools=listed.texts("llm_tools"),
        python_tools=listed.texts("python_tools"),
        pip_packages=_packages(listed),
        tool_definitions={
            name: _tool(name, one, where, problems)
            for name, one in _named(fields, "tools", "source_code", name_key="tool_id").items()
        },
    )
    kept = fields.rest() | ({"dependencies": listed.rest()} if listed.rest() else {})
    return replace(spec, extra=kept)


def _input(name: str, data: Mapping[str, Any], where: str, problems: list[str]) -> WorkflowInput:
    fields = Fields(_nameless(data, name), f"{where}input {name}: ", problems)
    return WorkflowInput(
        name=name,
        type=fields.text("type") or "string",
        required=fields.flag("required", True),
        default=fields.any("default"),
        description=fields.text("description") or "",
        extra=fields.rest(),
    )


def _output(name: str, data: Mapping[str, Any], where: str, problems: list[str]) -> WorkflowOutput:
    fields = Fields(_nameless(data, name), f"{where}output {name}: ", problems)
    return WorkflowOutput(
        name=name,
        type=fields.text("type") or "",
        description=fields.text("description") or "",
        source_reference=fields.text("source_reference") or "",
        extra=fields.rest(),
    )


def _tool(name: str, data: Mapping[str, Any], where: str, problems: list[str]) -> ToolDefinition:
    fields = Fields(data, f"{where}tool {name}: ", problems)
    return ToolDefinition(
        tool_id=fields.text("tool_id") or name,
        name=fields.text("name") or "",
        description=fields.text("description") or "",
        tool_type=fields.text("type") or "llm",
        model=fields.text("model"),
        system_prompt=fields.text("system_prompt"),
        temperature=fields.number("temperature", 0.7),
        endpoint=fields.text("endpoint"),
        source_code=fields.text("source_code"),
        requirements=fields.texts("requirements"),
        api_spec=fields.mapping("api_spec") if fields.has("api_spec") else None,
        retry_on_failure=fields.flag("retry_on_failure", False),
        timeout=fields.number("timeout", 300.0),
        fallback_tool=fields.text("fallback_tool"),
        extra=fields.rest(),
    )


def _packages(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Packages as objects; a requirement written as one text is taken apart."""
    value = fields.any("pip_packages")
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        fields.wrong("pip_packages", "a list", value)
        return ()
    found = []
    for one in value:
        if isinstance(one, str) and (parts := re.fullmatch(r"\s*([\w.\[\],-]+?)\s*([<>=!~].*)?", one)):
            found.append({"name": parts[1]} | ({"version": parts[2].strip()} if parts[2] else {}))
        elif isinstance(one, Mapping) and isinstance(one.get("name"), str):
            found.append(dict(one))
        else:
            fields.wrong("pip_packages", "objects with a name", one)
    return tuple(found)


def _named(
    fields: Fields, key: str, short: str, *, value: Any = None, name_key: str = "name"
) -> dict[str, dict[str, Any]]:
    """Things that have names, from an object or a list; a text in place of a thing is its `short` key."""
    value = fields.any(key) if value is None else value
    if value is None:
        return {}
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = [(one.get(name_key) if isinstance(one, Mapping) else None, one) for one in value]
    else:
        fields.wrong(key, "an object", value)
        return {}
    found: dict[str, dict[str, Any]] = {}
    for name, one in pairs:
        if isinstance(one, str):
            one = {short: one}
        if not isinstance(name, str) or not isinstance(one, Mapping):
            fields.wrong(key, f"objects with a {name_key}", one)
        elif name in found:
            fields.problems.append(f"{key} has {name!r} twice")
        else:
            found[name] = dict(one)
    return found


def _nameless(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Without the name, where that is only said twice."""
    return {key: value for key, value in data.items() if (key, value) != ("name", name)}
