"""Tools of this process for an agent in another one: a real MCP server, for as long as a session lasts."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ratchet.engines.loopback import listening
from ratchet.engines.session import McpServer, Tool
from ratchet.engines.tool_calls import Calls

if TYPE_CHECKING:
    from ratchet.engines.mcp_listener import McpListener

NAME = "ratchet"
"""What the server is called where a model sees its tools."""


@asynccontextmanager
async def served(tools: Sequence[Tool], *, name: str = NAME) -> AsyncIterator[McpServer]:
    """A server of these tools for the block. When it is left, calls that still run are cancelled and have ended.

    It listens on the loopback interface only, on a free port and behind a path that nobody can guess: neither another
    session nor a page in a browser can use what was offered to one session. Raises `Misuse` for tools that cannot be
    offered.
    """
    calls = Calls(tools)
    path = f"/{secrets.token_urlsafe(32)}/mcp"

    def make(address: str) -> McpListener:
        from ratchet.engines.tool_listener import tool_listener

        return tool_listener(calls, name=name, address=address, path=path)

    async with listening(make, calls.close) as address:
        yield McpServer(name, url=f"http://{address}{path}")
