"""The HTTP side of an MCP server inside this process: the official library behind uvicorn, and a session's tools."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.streamable_http_manager import DEFAULT_MAX_REQUEST_BODY_SIZE, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, ListToolsResult, TextContent
from mcp.types import Tool as ListedTool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ratchet.engines.tool_server import Calls

_GRACE_SECONDS = 5

Door = Callable[[Scope], Response | None]
"""Asked before anything of a request is read. A response refuses it; the scope may be told who came."""

Around = Callable[[ASGIApp], ASGIApp]
"""What sees a request first and its answer last."""


def _open(_scope: Scope) -> Response | None:
    return None


def _bare(app: ASGIApp) -> ASGIApp:
    return app


class McpListener(uvicorn.Server):
    """Serves MCP at one address and path. Signals are left to the process that it is a part of."""

    def __init__(
        self,
        server: Server[Any],
        *,
        address: str,
        path: str,
        other_addresses: Sequence[str] = (),
        door: Door = _open,
        around: Around = _bare,
        most_sessions: int | None = None,
        most_bytes: int = DEFAULT_MAX_REQUEST_BODY_SIZE,
    ) -> None:
        """A request of more than `most_bytes` is refused, and so is one that names another host than its addresses.

        Of clients that speak an older protocol, so many sessions are kept, for as long as it takes; if none is to be,
        each of their requests stands by itself too.
        """
        self._sessions = StreamableHTTPSessionManager(
            server,
            stateless=most_sessions is None,
            session_idle_timeout=None,
            max_sessions=most_sessions,
            max_request_body_size=most_bytes,
            security_settings=TransportSecuritySettings(allowed_hosts=[address, *other_addresses]),
        )
        self._path = path.encode()
        self._door = door
        self._answers = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                around(self._app),
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )

    async def listen(self, bound: socket.socket) -> None:
        async with self._sessions.run():
            await self.serve(sockets=[bound])

    async def answering(self, serving: asyncio.Task[None]) -> None:
        """Wait until it answers. Raises what kept it from doing so."""
        waiting = asyncio.create_task(self._answers.wait())
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if serving.done():
            serving.result()
            raise RuntimeError("the MCP server ended before it began")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._answers.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A caller that still waits for an answer waits in vain: what would give it has ended.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(scope)
        if refused is None:
            await self._sessions.handle_request(scope, receive, send)
        else:
            await refused(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        if not secrets.compare_digest(scope["path"].encode(errors="replace"), self._path):
            return Response(status_code=404)
        return self._door(scope)


# One agent, which may connect again.
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
