"""The HTTP side of an agent's server: MCP by the official library, behind uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ratchet.agentkit.logs import log

_PATH = "/mcp"
_GRACE_SECONDS = 8.0
# Behind the grace: what still runs then is a tool in a thread, which nothing but the end of the process ends.
_LAST_SECONDS = 2.0


class Listener(uvicorn.Server):
    """Serves at one port of this machine until a signal says to end, and then ends what was begun."""

    def __init__(self, server: MCPServer[Any], port: int) -> None:
        hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
        server.streamable_http_app(
            # A page in a browser, for whose name somebody gave out this machine's address, is not let in.
            transport_security=TransportSecuritySettings(
                allowed_hosts=hosts,
                allowed_origins=[f"http://{host}:*" for host in ("127.0.0.1", "localhost")],
            ),
        )
        self._sessions = server.session_manager
        self._messages = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        super().__init__(
            uvicorn.Config(
                self._app,
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
        )

    async def listen(self, bound: socket.socket) -> None:
        async with self._sessions.run():
            await self.serve(sockets=[bound])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _end_at_the_latest()
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._quiet.wait()
        # What is open now are streams on which clients wait for news that will not come.
        for connection in list(self.server_state.connections):
            connection.transport.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.should_exit = True

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != _PATH:
            await Response(status_code=404)(scope, receive, send)
        elif scope["method"] == "POST":
            with self._counted():
                await self._sessions.handle_request(scope, receive, send)
        else:
            await self._sessions.handle_request(scope, receive, send)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._messages += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._messages -= 1
            if self._messages == 0:
                self._quiet.set()


def _end_at_the_latest() -> None:
    def end() -> None:
        log.warning("calls did not end within %g s and were given up", _GRACE_SECONDS)
        os._exit(1)

    timer = threading.Timer(_GRACE_SECONDS + _LAST_SECONDS, end)
    timer.daemon = True
    timer.start()
