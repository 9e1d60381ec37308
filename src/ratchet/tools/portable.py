"""Tools that travel inside a workflow, as tools."""

from __future__ import annotations

from typing import Any

from ratchet.flowkit.spec import ToolDefinition
from ratchet.tools.definition import Tool, read_tool


def tool_from_definition(definition: ToolDefinition) -> Tool:
    """The tool that a portable workflow carries. Raises `ToolError`.

    Its other keys count as in a definition of its own: schemas, examples, constraints and the body.
    """
    data: dict[str, Any] = {
        **definition.extra,
        "type": definition.tool_type,
        "name": definition.name or definition.tool_id,
        "description": definition.description,
        "timeout": definition.timeout,
        "fallback_tool": definition.fallback_tool,
        "requirements": list(definition.requirements),
    }
    for key, body in _body(definition).items():
        given = data.get(key)
        data[key] = {**(given if isinstance(given, dict) else {}), **body}
    where = f"tool {definition.tool_id} of the workflow"
    return read_tool(data, folder=None, id=definition.tool_id, file=where)


def _body(definition: ToolDefinition) -> dict[str, dict[str, Any]]:
    """The body as a definition has it, by its key; an `executable` has its own table."""
    match definition.tool_type:
        case "llm":
            body: dict[str, Any] = {
                "model": definition.model,
                "system_prompt": definition.system_prompt,
                "temperature": definition.temperature,
                "endpoint": definition.endpoint,
            }
            return {"llm": {key: value for key, value in body.items() if value is not None}}
        case "python":
            return {"python": {} if definition.source_code is None else {"source": definition.source_code}}
        case "api" | "openapi":
            spec = definition.api_spec or {}
            # Either the whole description of a service, or only the keys of a definition.
            body = {"spec": dict(spec)} if "paths" in spec else dict(spec)
            return {"openapi": {**body, **({"base_url": definition.endpoint} if definition.endpoint else {})}}
    return {}
