"""Giving an engine tools of this process, in the way that it can take them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from ratchet.engines.engine import Engine
from ratchet.engines.session import Request, Tool
from ratchet.engines.tool_server import served


class Way(StrEnum):
    """How an engine takes tools of this process: over MCP, as functions, or not at all."""

    MCP = "mcp"
    FUNCTIONS = "functions"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Offered:
    """A request with the tools in it. With `Way.NONE` there are none: such a session can only leave its files."""

    request: Request
    way: Way


def way_to(engine: Engine) -> Way:
    """How this engine can be given tools. A prompt has to know that before a session begins."""
    if engine.capabilities.mcp_tools:
        return Way.MCP
    return Way.FUNCTIONS if engine.capabilities.own_tools else Way.NONE


@asynccontextmanager
async def offer(engine: Engine, request: Request, tools: Sequence[Tool]) -> AsyncIterator[Offered]:
    """The request with these tools, for the block: they cannot be used any more when it ends."""
    way = way_to(engine) if tools else Way.NONE
    match way:
        case Way.MCP:
            async with served(tools) as server:
                yield Offered(replace(request, mcp_servers=(*request.mcp_servers, server)), way)
        case Way.FUNCTIONS:
            yield Offered(replace(request, tools=(*request.tools, *tools)), way)
        case Way.NONE:
            yield Offered(request, way)
