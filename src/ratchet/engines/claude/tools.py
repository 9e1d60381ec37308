"""Tools that run in this process, and a guard over every tool of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from claude_agent_sdk import HookMatcher, SdkMcpTool, create_sdk_mcp_server
from claude_agent_sdk.types import McpSdkServerConfig

from ratchet.engines.claude.servers import OURS
from ratchet.engines.session import Guard, Tool

EDITS = frozenset({"Write", "Edit", "NotebookEdit"})
"""The built-in tools that change files by themselves."""


def own_server(tools: tuple[Tool, ...]) -> McpSdkServerConfig:
    return create_sdk_mcp_server(
        OURS,
        tools=[
            SdkMcpTool(
                name=tool.name,
                description=tool.description,
                input_schema=dict(tool.input_schema),
                handler=_handler(tool),
            )
            for tool in tools
        ],
    )


def guarding(guard: Guard, denied: Callable[[str, str, Any, str], None]) -> HookMatcher:
    """A hook that asks `guard`, and forbids what it could not be asked about."""

    async def ask(told: Any, call: str | None, _context: Any) -> Any:
        name, arguments = str(told["tool_name"]), told["tool_input"]
        reason = await guard(name, arguments)
        if reason is None:
            return {}
        denied(call or "", name, arguments, reason)
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }
        }

    return HookMatcher(hooks=[ask], on_failure="block")


def _handler(tool: Tool) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    async def handle(arguments: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await tool.run(arguments)}]}

    return handle
