"""Calling a tool: its inputs held against their schema, its body carried out, its answer held against the other one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from ratchet.flowkit.inputs import with_defaults
from ratchet.tools.bodies import WorkflowBody
from ratchet.tools.call import Called, Occasion, ToolFailed
from ratchet.tools.definition import Tool, ToolType
from ratchet.tools.fitting import misfit
from ratchet.tools.functions import call_function
from ratchet.tools.interceptors import announced_interceptors, intercepted
from ratchet.tools.models import call_llm_tool, call_model
from ratchet.tools.nodes import call_python
from ratchet.tools.programs import call_program
from ratchet.tools.sandboxed import most_output

__all__ = ["call_model", "call_tool"]

# Made once: `json.dumps` makes one for each call, which takes longer than a small value.
_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


async def call_tool(tool: Tool, values: Mapping[str, Any], occasion: Occasion) -> Called:
    """What `tool` answers to the inputs `values`. Raises `ToolFailed`.

    Nothing is written into the record of its calls: that is for whoever calls.
    """
    if (why_not := tool.refusal) is not None:
        raise ToolFailed(why_not, hint="use a tool that has a body", final=True)
    if not isinstance(values, dict):
        # A schema and JSON know no other objects.
        values = dict(values)
    if tool.type is not ToolType.MCP:
        # A server fills in its own defaults, whatever its schema declares.
        values = with_defaults(values, tool.input_schema)
    if (wrong := misfit(values, tool.input_schema)) is not None:
        raise ToolFailed(
            f"the inputs of tool {tool.id} do not fit: {wrong}",
            hint=f"see `ratchet tool show {tool.id}`",
            final=True,
        )
    chain = announced_interceptors()
    if not chain:
        return await _carry_out(tool, values, occasion)
    return await intercepted(chain, tool, values, lambda: _carry_out(tool, values, occasion))


async def _carry_out(tool: Tool, values: Mapping[str, Any], occasion: Occasion) -> Called:
    seconds = occasion.seconds if tool.timeout is None else min(tool.timeout, occasion.seconds)
    called = await _CARRY_OUT[tool.type](tool, tool.body, values, occasion, seconds)
    _check_answer(tool, called, most_output(tool, occasion))
    return called


def _check_answer(tool: Tool, called: Called, most: int) -> None:
    try:
        size = len(_JSON.encode(called.value).encode(errors="replace"))
        wrong = f"it has {size} bytes, at most {most} are allowed" if size > most else None
        wrong = wrong or misfit(called.value, tool.output_schema)
    except (TypeError, ValueError, RecursionError) as error:
        wrong = f"it is not JSON: {error}"
    if wrong is not None:
        raise ToolFailed(
            f"the answer of tool {tool.id} cannot be used: {wrong}",
            hint="mend the tool, or its output schema and constraints",
            use=called.use,
            said=called.said,
        )


async def _call_mcp(
    tool: Tool, body: Any, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> Called:
    # Few workflows use them, and both take long to import.
    from ratchet.tools.mcp_tools import call_mcp

    return await call_mcp(tool, body, values, occasion, seconds)


async def _call_web(
    tool: Tool, body: Any, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> Called:
    from ratchet.tools.web import call_web

    return await call_web(tool, body, values, occasion, seconds)


async def _call_workflow(
    tool: Tool, body: WorkflowBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> Called:
    if occasion.run_workflow is None:
        raise ToolFailed(
            f"tool {tool.id} is a workflow, which cannot be run from here",
            hint="run it by `ratchet workflow run`, or as a step of another workflow",
            final=True,
        )
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            called = await occasion.run_workflow(body.spec, values)
    except TimeoutError:
        raise ToolFailed(
            f"tool {tool.id} did not end within {seconds:g} s", hint="raise its timeout"
        ) from None
    return replace(called, use=replace(called.use, wall_ms=(time.monotonic() - began) * 1000))


_CARRY_OUT: Mapping[ToolType, Callable[..., Awaitable[Called]]] = {
    ToolType.LLM: call_llm_tool,
    ToolType.PYTHON: call_python,
    ToolType.EXECUTABLE: call_program,
    ToolType.OPENAPI: _call_web,
    ToolType.MCP: _call_mcp,
    ToolType.WORKFLOW: _call_workflow,
    ToolType.FUNCTION: call_function,
}
