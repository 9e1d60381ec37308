"""Writing a tool down as JSON: only what is not as it would be anyway, so that equal tools have equal definitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ratchet.kernel.semver import Bump
from ratchet.tools.bodies import ExecutableBody, McpBody, OpenApiBody

if TYPE_CHECKING:
    from ratchet.tools.definition import Example, Tool

_APART = frozenset({"extra", "folder", "files", "warnings", "examples", "network", "cache", "constraints"})
_BODIES = ("llm", "python", "executable", "openapi", "mcp", "workflow", "function")


def write_tool(tool: Tool) -> dict[str, Any]:
    """The definition of `tool`. `read_tool` makes an equal one of it, without its folder."""
    data: dict[str, Any] = {"id": tool.id, "type": tool.type.value, "name": tool.name}
    for field in dataclasses.fields(tool):
        if field.name not in _APART and field.name not in _BODIES:
            value = getattr(tool, field.name)
            if field.name not in data and value != field.default:
                data[field.name] = _plain(value)
    outside = tool.type in ("openapi", "mcp")
    if tool.network != outside:
        data["network"] = tool.network
    if tool.cache != (not tool.network):
        data["cache"] = tool.cache
    if tool.examples:
        data["examples"] = [_example(each) for each in tool.examples]
    if constraints := _set_fields(tool.constraints):
        data["constraints"] = constraints
    if tool.body is not None:
        data[tool.type.value] = _set_fields(tool.body)
        _settle(data, tool)
    return {**tool.extra, **data}


def _settle(data: dict[str, Any], tool: Tool) -> None:
    """Two keys of bodies stand beside the body in a file, and a command without arguments says that it has none."""
    body = data[tool.type.value]
    if isinstance(tool.body, ExecutableBody):
        body.setdefault("args", [])
    if isinstance(tool.body, OpenApiBody) and "code_template" in body:
        data["code_template"] = body.pop("code_template")
    if isinstance(tool.body, McpBody) and "capabilities" in body:
        data["capabilities"] = body.pop("capabilities")


def _set_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not as they would be anyway, beside what else the file had."""
    found: dict[str, Any] = dict(value.extra)
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        usual = field.default_factory() if callable(field.default_factory) else field.default
        if field.name != "extra" and given != usual:
            found[field.name] = _plain(given)
    return found


def _example(example: Example) -> dict[str, Any]:
    data: dict[str, Any] = {"input": dict(example.input)}
    if example.checked:
        data["output"] = example.output
    if example.description:
        data["description"] = example.description
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, Bump):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
