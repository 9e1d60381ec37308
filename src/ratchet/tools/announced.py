"""Functions that installed packages announce as tools, each with a schema made of its annotations."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from ratchet.tools.bodies import FunctionBody
from ratchet.tools.definition import Tool, ToolType
from ratchet.tools.fields import ToolError
from ratchet.tools.purity import is_pure

GROUP = "ratchet.tools"
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}


@functools.cache
def announced_functions() -> tuple[EntryPoint, ...]:
    """Looked for once: it takes a while, and a process keeps the packages that it started with."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda each: each.name))


def mark_of(entry: EntryPoint) -> str:
    """Changes with the function's place and with the version of the package that brings it."""
    return f"{entry.value}@{entry.dist.version if entry.dist else ''}"


def tool_of(entry: EntryPoint) -> Tool:
    """The tool that calls this function. Raises `ToolError` when it cannot be loaded."""
    try:
        function = entry.load()
        schema = input_schema(function)
    except Exception as error:
        # A package of somebody else: whatever is wrong with it, the other tools are not.
        raise ToolError([f"{entry.value} cannot be used: {type(error).__name__}: {error}"]) from error
    summary = inspect.getdoc(function) or ""
    return Tool(
        id=entry.name,
        type=ToolType.FUNCTION,
        name=entry.name,
        description=summary.partition("\n\n")[0].replace("\n", " "),
        tags=("function",),
        cost_tier="free",
        speed_tier="very-fast",
        input_schema=schema,
        function=FunctionBody(entry.name, extra={"pure": True} if is_pure(function) else {}),
    )


def input_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function takes by name. An annotation that JSON has no word for allows anything."""
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required = []
    more = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            more = True
            continue
        if name == "occasion" and parameter.kind is parameter.KEYWORD_ONLY:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{name} cannot be given by name")
        properties[name] = _schema(hints.get(name, Any))
        if parameter.default is parameter.empty:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": more}
    return schema | ({"required": required} if required else {})


def _schema(hint: Any) -> dict[str, Any]:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if hint is None or hint is type(None):
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(part) for part in parts]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object"}
    if isinstance(origin, type) and issubclass(origin, list | typing.Sequence):
        return {"type": "array", "items": _schema(parts[0])} if parts else {"type": "array"}
    return {}
