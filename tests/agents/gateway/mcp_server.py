"""An MCP server like that of an agent, in the process of a test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from mcp.server.mcpserver import Context, MCPServer


class _Http(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _tools(name: str) -> MCPServer:
    server = MCPServer(name, log_level="ERROR")

    @server.tool()
    async def who(text: str = "") -> str:
        return f"{name}:{text}"

    @server.tool()
    async def count_up(to: int, context: Context) -> str:
        for number in range(to):
            await context.report_progress(number, to)
        return "done"

    @server.tool()
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    return server


def _http(server: MCPServer, port: int) -> _Http:
    app = server.streamable_http_app(host="127.0.0.1")
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_config=None, log_level="warning", access_log=False, ws="none"
    )
    return _Http(config)


@contextlib.asynccontextmanager
async def mcp_server(name: str) -> AsyncIterator[int]:
    """The port of a server whose tool `who` answers with its name."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    http = _http(_tools(name), port)
    serving = asyncio.create_task(http.serve(sockets=[bound]))
    try:
        while not http.started:
            assert not serving.done(), serving
            await asyncio.sleep(0.005)
        yield port
    finally:
        http.should_exit = http.force_exit = True
        await serving
        bound.close()
