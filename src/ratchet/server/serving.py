"""`ratchet serve`: the API with the console, a worker and the host of agents in one process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI

from ratchet.agents.host import hosting
from ratchet.config import Loaded
from ratchet.config.load import ports_to_try
from ratchet.observe.logs import logger
from ratchet.runtime import Kinds, Worker, open_ledger, open_runtime
from ratchet.runtime.addresses import ServerAddress, announced
from ratchet.runtime.signals import StopSignals
from ratchet.server.app import create_app
from ratchet.server.connection import BoundedConnection
from ratchet.server.port import listen, url_of
from ratchet.server.service import Service
from ratchet.server.token import find_token

_log = logger(__name__)
# Connections that are accepted at a time, before any of them can make room.
_BACKLOG = 128
# Requests that wait for the database at once; the rest of its connections are the worker's.
_THREADS = 16
# How long callers may take to read their answers when the server ends; then it hangs up.
_GRACE_SECONDS = 3
# How long an endpoint may take after that; then it is left behind.
_LAST_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the API and the agents answer, and the file with its token; no file when the token was configured.

    `link` lets a person into the console, and is as secret as the token.
    """

    url: str
    agents_url: str | None
    token_path: Path | None
    process_id: str
    link: str = field(repr=False)


def serve(
    loaded: Loaded,
    *,
    host: str | None = None,
    port: int | None = None,
    ready: Callable[[Serving], None] | None = None,
    kinds: Kinds | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, then drain: finish jobs and requests, end streams. Returns the exit code.

    `host` and `port` default to the settings. `ready` is called once requests are answered. Call it in the main thread.
    A port that nobody asked for and that is taken gives way to a free one, also that of the agents; with a `port`, that
    of the agents does so even if it is configured, as it is for a server beside another. Raises
    `ConfigError` rather than listen where strangers could come in without a token that somebody chose, and `Conflict`
    for a port that was asked for and is taken.
    """
    token = find_token(loaded)
    ports = ports_to_try(loaded, "server.port") if port is None else (port,)
    with (
        StopSignals() as signals,
        listen(host or loaded.settings.server.host, *ports, token_configured=token.configured) as bound,
        open_ledger(loaded) as ledger,
        announced(loaded.home, ServerAddress(*bound.getsockname()[:2])),
    ):
        runtime = open_runtime(loaded, ledger, kinds)
        worker = Worker(runtime, role="server")
        app = create_app(runtime, loaded, token.value, process_id=worker.process_id)
        url = url_of(bound)
        service: Service = app.state.service

        def started() -> None:
            _log.info("serving", url=url)
            agents = None if service.host is None else service.host.url
            if ready is not None:
                ready(Serving(url, agents, token.path, worker.process_id, token.link(url)))

        worker.start()
        asyncio.run(_serve(app, token.value, bound, worker, signals, started, any_port=port is not None))
    return 0


async def _serve(
    app: FastAPI,
    token: str,
    bound: socket.socket,
    worker: Worker,
    signals: StopSignals,
    started: Callable[[], None],
    *,
    any_port: bool,
) -> None:
    service: Service = app.state.service
    current_default_thread_limiter().total_tokens = _THREADS
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    signals.when_asked(partial(loop.call_soon_threadsafe, asked.set))
    async with AsyncExitStack() as stack:
        try:
            agents = hosting(service.runtime, service.loaded, api_token=token, any_port=any_port)
            service.host = await stack.enter_async_context(agents)
        except BaseException:
            await asyncio.to_thread(worker.stop)
            raise
        http = _Http(app, started)
        answering = asyncio.create_task(http.serve(sockets=[bound]))
        waiting = asyncio.create_task(asked.wait())
        # It ends by itself only if it could not begin.
        await asyncio.wait({answering, waiting}, return_when=asyncio.FIRST_COMPLETED)
        service.stop()
        # Requests are answered meanwhile, also by agents: those who watch a job can see it finish.
        await asyncio.to_thread(worker.stop)
        http.should_exit = True
        waiting.cancel()
        await answering


class _Http(uvicorn.Server):
    """uvicorn, which leaves signals to us and tells when it answers."""

    def __init__(self, app: FastAPI, started: Callable[[], None]) -> None:
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
        self._started()

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
