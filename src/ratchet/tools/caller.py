"""Calls a tool: checks its inputs against their schema, asks interceptors, runs its body, checks its answer."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any, Protocol

from ratchet.flowkit.inputs import with_defaults
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult
from ratchet.tools.definition import Tool, ToolType, WorkflowBody
from ratchet.tools.fit import misfit
from ratchet.tools.functions import call_function
from ratchet.tools.models import call_llm_tool, call_model
from ratchet.tools.placed import call_placed
from ratchet.tools.programs import most_output

GROUP = "ratchet.interceptors"
# Made once: `json.dumps` makes one for each call, which takes longer than a small value.
_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


class Interceptor(Protocol):
    """Either may raise `ToolCallFailed`: before the call it is not made, after it the answer is not used."""

    @property
    def place(self) -> int: ...

    def before(self, tool: Tool, values: Mapping[str, Any]) -> None: ...

    def after(self, tool: Tool, values: Mapping[str, Any], outcome: ToolResult | ToolCallFailed) -> None: ...


@functools.cache
def announced_interceptors() -> tuple[Interceptor, ...]:
    """Those of the installed packages, looked for once. Raises `ToolCallFailed`: a broken guard lets nothing by."""
    found: list[Interceptor] = []
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            found.append(point.load()())
        except Exception as error:
            raise ToolCallFailed(
                f"the interceptor {point.value} cannot be loaded: {type(error).__name__}: {error}",
                hint="fix or uninstall the package that brings it",
                final=True,
            ) from error
    return tuple(sorted(found, key=lambda each: each.place))


async def intercepted(
    chain: Sequence[Interceptor],
    tool: Tool,
    values: Mapping[str, Any],
    call: Callable[[], Awaitable[ToolResult]],
) -> ToolResult:
    """Make the call if no interceptor objects. Each asked before is called after, even of a failure."""
    asked: list[Interceptor] = []
    outcome: ToolResult | ToolCallFailed
    try:
        for each in chain:
            asked.append(each)
            _consult(each, functools.partial(each.before, tool, values))
        outcome = await call()
    except ToolCallFailed as failed:
        outcome = failed
    for each in reversed(asked):
        try:
            _consult(each, functools.partial(each.after, tool, values, outcome))
        except ToolCallFailed as failed:
            outcome = failed
    if isinstance(outcome, ToolCallFailed):
        raise outcome
    return outcome


def _consult(interceptor: Interceptor, say: Callable[[], None]) -> None:
    try:
        say()
    except ToolCallFailed:
        raise
    except Exception as error:
        name = type(interceptor).__name__
        raise ToolCallFailed(
            f"the interceptor {name} broke: {type(error).__name__}: {error}", final=True
        ) from error


__all__ = ["call_model", "call_tool"]


async def call_tool(tool: Tool, values: Mapping[str, Any], occasion: Occasion) -> ToolResult:
    """What `tool` answers to the inputs `values`. Raises `ToolCallFailed`.

    Nothing is written into the record of its calls: that is up to the caller.
    """
    if (why_not := tool.refusal) is not None:
        raise ToolCallFailed(why_not, hint="use a tool that has a body", final=True)
    if not isinstance(values, dict):
        # A schema and JSON know no other objects.
        values = dict(values)
    if tool.type is not ToolType.MCP:
        # A server fills in its own defaults, whatever its schema declares.
        values = with_defaults(values, tool.input_schema)
    if (wrong := misfit(values, tool.input_schema)) is not None:
        raise ToolCallFailed(
            f"the inputs of tool {tool.id} do not fit: {wrong}",
            hint=f"see `ratchet tool show {tool.id}`",
            final=True,
        )
    chain = announced_interceptors()
    if not chain:
        return await _carry_out(tool, values, occasion)
    # What looks at answers looks at whole ones, before anything of them is used.
    whole = replace(occasion, give_line=None)
    return await intercepted(chain, tool, values, lambda: _carry_out(tool, values, whole))


async def _carry_out(tool: Tool, values: Mapping[str, Any], occasion: Occasion) -> ToolResult:
    seconds = occasion.seconds if tool.timeout is None else min(tool.timeout, occasion.seconds)
    called = await _CARRY_OUT[tool.type](tool, tool.body, values, occasion, seconds)
    _check_answer(tool, called, most_output(tool, occasion))
    return called


def _check_answer(tool: Tool, called: ToolResult, most: int) -> None:
    try:
        size = len(_JSON.encode(called.value).encode(errors="replace"))
        wrong = f"it has {size} bytes, at most {most} are allowed" if size > most else None
        wrong = wrong or misfit(called.value, tool.output_schema)
    except (TypeError, ValueError, RecursionError) as error:
        wrong = f"it is not JSON: {error}"
    if wrong is not None:
        raise ToolCallFailed(
            f"the answer of tool {tool.id} cannot be used: {wrong}",
            hint="fix the tool, or its output schema and constraints",
            use=called.use,
            said=called.said,
        )


async def _call_mcp(
    tool: Tool, body: Any, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    # Few workflows use them, and both take long to import.
    from ratchet.tools.mcp_tools import call_mcp

    return await call_mcp(tool, body, values, occasion, seconds)


async def _call_web(
    tool: Tool, body: Any, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    from ratchet.tools.web import call_web

    return await call_web(tool, body, values, occasion, seconds)


async def _call_workflow(
    tool: Tool, body: WorkflowBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    if occasion.run_workflow is None:
        raise ToolCallFailed(
            f"tool {tool.id} is a workflow, which cannot be run from here",
            hint="run it by `ratchet workflow run`, or as a step of another workflow",
            final=True,
        )
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            called = await occasion.run_workflow(body.spec, values)
    except TimeoutError:
        raise ToolCallFailed(
            f"tool {tool.id} did not end within {seconds:g} s", hint="raise its timeout"
        ) from None
    return replace(called, use=replace(called.use, wall_ms=(time.monotonic() - began) * 1000))


_CARRY_OUT: Mapping[ToolType, Callable[..., Awaitable[ToolResult]]] = {
    ToolType.LLM: call_llm_tool,
    ToolType.PYTHON: call_placed,
    ToolType.EXECUTABLE: call_placed,
    ToolType.OPENAPI: _call_web,
    ToolType.MCP: _call_mcp,
    ToolType.WORKFLOW: _call_workflow,
    ToolType.FUNCTION: call_function,
}
