"""Using a tool outside of a workflow, on record like any other call of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ratchet.ledger.tools import CallRow, record_calls
from ratchet.runtime import Runtime
from ratchet.tools.call import Called, Occasion, ToolFailed, ToolUse, unheard
from ratchet.tools.calling import call_tool
from ratchet.tools.constraints import check_constraints
from ratchet.tools.recording import call_row
from ratchet.tools.registry import Toolbox, ToolVersion

CALL_SECONDS = 300.0


async def use_tool(
    runtime: Runtime,
    version: ToolVersion,
    values: Mapping[str, Any],
    *,
    seconds: float = CALL_SECONDS,
    listen: Callable[[str, Mapping[str, Any]], None] = unheard,
    actor: str,
) -> Called:
    """What the tool answers. Raises `ToolFailed`, and `TooOften` for one that may not be called now."""
    await asyncio.to_thread(_start, runtime, version, actor)
    occasion = Occasion(runtime, actor=actor, seconds=seconds, listen=listen)
    try:
        called = await call_tool(version.tool, values, occasion)
    except ToolFailed as failed:
        await asyncio.to_thread(_record, runtime, actor, _row(version, values, failed.use, error=str(failed)))
        raise
    await asyncio.to_thread(_record, runtime, actor, _row(version, values, called.use, called=called))
    return called


def _start(runtime: Runtime, version: ToolVersion, actor: str) -> None:
    if version.tool.constraints.max_calls_per_hour is not None:
        with runtime.ledger.write(actor=actor) as tx:
            check_constraints(tx, version.tool_id, version.tool)


def _record(runtime: Runtime, actor: str, row: CallRow | None) -> None:
    if row is not None:
        with runtime.ledger.write(actor=actor) as tx:
            record_calls(tx, [row])


def _row(
    version: ToolVersion,
    values: Mapping[str, Any],
    use: ToolUse,
    *,
    called: Called | None = None,
    error: str | None = None,
) -> CallRow | None:
    """The call as the ledger keeps it; nothing for a tool that wants none kept."""
    if not version.tool.track_usage:
        return None
    return call_row(version.tool_id, version.id, values, use, called=called, error=error)


async def take_server(runtime: Runtime, toolbox: Toolbox, server: str, *, actor: str) -> list[ToolVersion]:
    """Ask an MCP server of the settings which tools it has, and let them be used. Raises `ToolFailed`."""
    # It is needed for this only, and takes long to import.
    from ratchet.tools.mcp_tools import list_server_tools

    listed = await list_server_tools(server, Occasion(runtime, actor=actor, seconds=CALL_SECONDS))
    return await asyncio.to_thread(toolbox.take_server_tools, server, listed)
