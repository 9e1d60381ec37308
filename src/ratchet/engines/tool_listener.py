"""The MCP side of the tools of one session."""

from __future__ import annotations

from typing import Any

from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent
from mcp.types import Tool as ListedTool

from ratchet.engines.mcp_listener import McpListener
from ratchet.engines.tool_calls import Calls

# One agent, which may connect anew.
_MOST_SESSIONS = 64


def tool_listener(calls: Calls, *, name: str, address: str, path: str) -> McpListener:
    """What serves the tools; a session may think, or wait for a trial, for hours."""
    return McpListener(_mcp(calls, name), address=address, path=path, most_sessions=_MOST_SESSIONS)


def _mcp(calls: Calls, name: str) -> Server[Any]:
    listed = [
        ListedTool(name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))
        for tool in calls.tools.values()
    ]

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        answer = await calls.use(params.name, params.arguments or {})
        return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=answer.failed)

    return Server(name, on_list_tools=list_tools, on_call_tool=call_tool)
