"""The Architect's address, for as long as a host runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ratchet.agents.architect_server.caller import Callers
from ratchet.agents.architect_server.desk import Desk
from ratchet.agents.asking import LONGEST_QUESTION
from ratchet.agents.tokens import Tokens
from ratchet.config import Loaded
from ratchet.engines.loopback import listening
from ratchet.engines.tool_calls import Underway
from ratchet.runtime import Runtime

if TYPE_CHECKING:
    from ratchet.engines.mcp_listener import McpListener

# A character can take six bytes where JSON escapes it.
_ESCAPED = 6
_AROUND = 65_536


@asynccontextmanager
async def architect_listening(
    runtime: Runtime, loaded: Loaded, tokens: Tokens, *, api_token: str
) -> AsyncIterator[int]:
    """Answer at http://127.0.0.1:PORT/architect/mcp for the block; the value is the port.

    Who brings `api_token` may use every tool, who brings a token of `tokens` only those for agents, and anybody else
    none. When the block is left, calls that still run are cancelled and have ended.
    """
    desk, callers = Desk(runtime, loaded), Callers(tokens, api_token)
    most_bytes = _ESCAPED * max(loaded.settings.agents.feedback_bytes, LONGEST_QUESTION) + _AROUND
    calls = Underway[Any]()

    def make(address: str) -> McpListener:
        from ratchet.agents.architect_server.mcp_side import ArchitectServer

        return ArchitectServer(desk, calls).listener(callers, address=address, most_bytes=most_bytes)

    async with listening(make, calls.close) as address:
        yield int(address.rpartition(":")[2])
