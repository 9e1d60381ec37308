"""Using a tool outside of a workflow, on record like any other call of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ratchet.ledger.tools import CallRow, record_calls
from ratchet.runtime import Runtime
from ratchet.tools.call import Called, Occasion, ToolFailed
from ratchet.tools.calling import call_tool
from ratchet.tools.constraints import check_constraints
from ratchet.tools.definition import Tool
from ratchet.tools.recording import call_row
from ratchet.tools.registry import Toolbox, ToolVersion

CALL_SECONDS = 300.0


async def use_tool(version: ToolVersion, values: Mapping[str, Any], occasion: Occasion) -> Called:
    """What the tool answers. Raises `ToolFailed`, and `TooOften` for one that may not be called now."""

    async def call() -> Called:
        return await call_tool(version.tool, values, occasion)

    return await on_record(call, version.tool, version.tool_id, version.id, values, occasion)


async def on_record(
    call: Callable[[], Awaitable[Called]],
    tool: Tool,
    tool_id: int,
    version_id: int,
    values: Mapping[str, Any],
    occasion: Occasion,
) -> Called:
    """Make a call of a version of a tool, and write down what it took and came to. Raises as `use_tool` does."""
    await asyncio.to_thread(_start, occasion, tool, tool_id)
    try:
        called = await call()
    except ToolFailed as failed:
        row = call_row(tool_id, version_id, values, failed.use, error=str(failed))
        await asyncio.to_thread(_record, occasion, tool, row)
        raise
    row = call_row(tool_id, version_id, values, called.use, called=called)
    await asyncio.to_thread(_record, occasion, tool, row)
    return called


def _start(occasion: Occasion, tool: Tool, tool_id: int) -> None:
    if tool.constraints.max_calls_per_hour is not None:
        with occasion.runtime.ledger.write(actor=occasion.actor) as tx:
            check_constraints(tx, tool_id, tool)


def _record(occasion: Occasion, tool: Tool, row: CallRow) -> None:
    if tool.track_usage:
        with occasion.runtime.ledger.write(actor=occasion.actor) as tx:
            record_calls(tx, [row])


async def take_server(runtime: Runtime, toolbox: Toolbox, server: str, *, actor: str) -> list[ToolVersion]:
    """Ask an MCP server of the settings which tools it has, and let them be used. Raises `ToolFailed`."""
    # It is needed for this only, and takes long to import.
    from ratchet.tools.mcp_tools import list_server_tools

    listed = await list_server_tools(server, Occasion(runtime, actor=actor, seconds=CALL_SECONDS))
    return await asyncio.to_thread(toolbox.take_server_tools, server, listed)
