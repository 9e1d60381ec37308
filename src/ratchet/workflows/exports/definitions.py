"""Writes a tool in the form in which it travels inside a workflow."""

from __future__ import annotations

from typing import Any

from ratchet.flowkit.spec import ToolDefinition
from ratchet.tools.definition import Tool
from ratchet.tools.programs import has_function
from ratchet.workflows.exports.carrying import source_of_function

# What a definition has fields for, and what only matters where tools are chosen and versioned.
_ELSEWHERE = frozenset(
    (
        *(
            "id",
            "type",
            "name",
            "description",
            "requirements",
            "timeout",
            "fallback_tool",
            "python",
            "function",
            # The step that calls it holds it.
            "workflow",
        ),
        *("examples", "track_usage", "priority", "version", "change_type", "breaking_changes"),
    )
)


def definition_of(tool: Tool, name: str, seconds: float) -> ToolDefinition:
    """`tool` as `name`. `seconds` is its limit if it has none of its own. Raises `Unfit`."""
    extra: dict[str, Any] = {key: value for key, value in tool.data.items() if key not in _ELSEWHERE}
    kind, source, entry = tool.type.value, None, None
    if tool.function is not None:
        kind = "python"
        source, entry = source_of_function(tool.function)
    elif tool.python is not None:
        source, entry = tool.python.source, tool.python.entry
    if source is not None and entry is not None:
        extra["python"] = {"entry": entry} if has_function(source, entry) else {"script": True}
    own = None if tool.llm is None else tool.llm.temperature
    return ToolDefinition(
        tool_id=name,
        name=tool.name,
        description=tool.description,
        tool_type=kind,
        temperature=ToolDefinition.temperature if own is None else own,
        source_code=source,
        requirements=tool.requirements,
        timeout=tool.timeout or seconds,
        fallback_tool=tool.fallback_tool,
        extra=dict(sorted(extra.items())),
    )
