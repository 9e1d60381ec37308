"""Function tools: trusted functions of this process, announced by installed packages.

Nothing is forked for them, so a call costs some microseconds; it also has no limit of memory, and a function that is
not a coroutine cannot be stopped. One that takes long declares `slow: true` and runs in a thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
import types
import typing
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult, ToolUse
from ratchet.tools.definition import FunctionBody, Tool, ToolType
from ratchet.tools.definition_file import ToolError
from ratchet.tools.plain import is_pure

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
        # A third-party package: whatever is wrong with it, the other tools still work.
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


async def call_function(
    tool: Tool, body: FunctionBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    """Raises `ToolCallFailed`, also for whatever the function raises."""
    function = announced_function(body.entry)
    given = {**values, "occasion": occasion} if takes_occasion(function) else values
    began = time.perf_counter()
    try:
        if body.extra.get("slow"):
            async with asyncio.timeout(seconds):
                value = await asyncio.to_thread(function, **given)
        else:
            value = function(**given)
        if inspect.isawaitable(value):
            async with asyncio.timeout(seconds):
                value = await value
    except ToolCallFailed:
        raise
    except TimeoutError as error:
        raise ToolCallFailed(
            f"tool {tool.id} did not end within {seconds:g} s", use=_use(began), hint="raise its timeout"
        ) from error
    except Exception as error:
        raise ToolCallFailed(
            f"tool {tool.id} failed: {type(error).__name__}: {error}", use=_use(began)
        ) from error
    return ToolResult(value, _use(began))


@functools.lru_cache(maxsize=1024)
def announced_function(name: str) -> Callable[..., Any]:
    """The function that a package announces as `name`. Raises `ToolCallFailed`."""
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
        raise ToolCallFailed(
            f"there is no function {name!r}; installed packages announce: {known}",
            hint=f"install the package that has it; it announces functions as entry points of {GROUP}",
            final=True,
        )
    try:
        function: Callable[..., Any] = found[0].load()
    except Exception as error:
        raise ToolCallFailed(
            f"the function {name!r} of {found[0].value} cannot be loaded: {type(error).__name__}: {error}",
            hint="fix or uninstall the package that brings it",
            final=True,
        ) from error
    if not callable(function):
        raise ToolCallFailed(f"{found[0].value} is not a function", final=True)
    return function


@functools.lru_cache(maxsize=1024)
def takes_occasion(function: Callable[..., Any]) -> bool:
    """Whether a function wants to know on whose behalf it is called, by a keyword-only `occasion`."""
    parameter = inspect.signature(function).parameters.get("occasion")
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def _use(began: float) -> ToolUse:
    return ToolUse(wall_ms=(time.perf_counter() - began) * 1000)
