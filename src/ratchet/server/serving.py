"""The process of `ratchet serve` that answers: the API with the console, and the host of agents."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI

from ratchet.agents.host import hosting
from ratchet.config import Loaded
from ratchet.observe import tracing
from ratchet.observe.logs import logger
from ratchet.runtime import Kinds, open_ledger, open_runtime
from ratchet.runtime.addresses import ServerAddress, announced
from ratchet.runtime.heartbeat import Heartbeat
from ratchet.server.app import create_app
from ratchet.server.connection import BoundedConnection
from ratchet.server.port import url_of
from ratchet.server.service import Service
from ratchet.server.supervisor import Life, Serving
from ratchet.server.token import Token

_log = logger(__name__)
# Connections that are accepted at a time, before any of them can make room.
_BACKLOG = 128
# Requests that wait for the database at once; the rest of its connections are the worker's.
_THREADS = 16
# How long callers may take to read their answers when the server ends; then it hangs up.
_GRACE_SECONDS = 3
# How long an endpoint may take after that; then it is left behind.
_LAST_SECONDS = 5


def answer(
    loaded: Loaded,
    bound: socket.socket,
    token: Token,
    life: Life,
    *,
    any_port: bool,
    ready: Callable[[Serving], None] | None = None,
    kinds: Kinds | None = None,
) -> int:
    """Answer requests on `bound` until SIGTERM; SIGUSR1 announces it. Returns the exit code.

    `ready` is called once, in the first life, when the worker beside it has begun as well.
    """
    tracing.configure(loaded.settings.tracing.enabled, loaded.settings.tracing.endpoint)
    with (
        open_ledger(loaded) as ledger,
        announced(loaded.home, ServerAddress(*bound.getsockname()[:2])),
    ):
        runtime = open_runtime(loaded, ledger, kinds)
        runtime.works_here = True
        heartbeat = Heartbeat(runtime, "server", 0, running=lambda: (), lost=lambda: None)
        app = create_app(runtime, loaded, token.value, process_id=heartbeat.process_id)
        url = url_of(bound)
        service: Service = app.state.service

        async def started() -> None:
            agents = None if service.host is None else service.host.url
            _log.info("serving", url=url)
            life.begun((agents and urlsplit(agents).port) or 0)
            if life.number == 1 and ready is not None:
                await _readable(life.beside)
                ready(Serving(url, agents, token.path, heartbeat.process_id, token.link(url)))

        heartbeat.start()
        try:
            asyncio.run(_serve(app, token.value, bound, started, any_port=any_port, port_before=life.before))
        finally:
            heartbeat.stop()
    tracing.shutdown()
    return 0


async def _serve(
    app: FastAPI,
    token: str,
    bound: socket.socket,
    started: Callable[[], Awaitable[None]],
    *,
    any_port: bool,
    port_before: int | None,
) -> None:
    service: Service = app.state.service
    current_default_thread_limiter().total_tokens = _THREADS
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, service.stop)
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    agents = hosting(
        service.runtime, service.loaded, api_token=token, any_port=any_port, port_before=port_before
    )
    async with agents as service.host:
        http = _Http(app, started)
        answering = asyncio.create_task(http.serve(sockets=[bound]))
        waiting = asyncio.create_task(asked.wait())
        # It ends by itself only if it could not begin.
        await asyncio.wait({answering, waiting}, return_when=asyncio.FIRST_COMPLETED)
        service.stop()
        http.should_exit = True
        waiting.cancel()
        await answering


async def _readable(descriptor: int) -> None:
    """Wait until there is something to read, and leave it there."""
    there = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, there.set)
    await there.wait()
    loop.remove_reader(descriptor)


class _Http(uvicorn.Server):
    """uvicorn, which leaves signals to us and tells when it answers."""

    def __init__(self, app: FastAPI, started: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedConnection,
                backlog=_BACKLOG,
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_SECONDS + _LAST_SECONDS,
            )
        )
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        hanging_up = asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._hang_up)
        await super().shutdown(sockets)
        hanging_up.cancel()

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
