"""The process of `ratchet serve` that answers: the API with the console, and the host of agents."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ratchet.agents.host import hosting
from ratchet.config import Loaded
from ratchet.observe import tracing
from ratchet.observe.logs import logger
from ratchet.runtime import Kinds, open_ledger, open_runtime
from ratchet.runtime.addresses import ServerAddress, announced
from ratchet.runtime.heartbeat import Heartbeat
from ratchet.server.address import Token, url_of
from ratchet.server.app import create_app
from ratchet.server.service import Service, most_connections
from ratchet.server.supervisor import Life, Serving

MOST_HEADER_BYTES = 64 * 1024
HEADER_SECONDS = 10.0
# From the end of the headers to the end of the body.
BODY_SECONDS = 120.0
# How long a caller may leave a full buffer unread.
STALLED_SECONDS = 60.0
# Requests of one connection that wait for the answers before theirs.
MOST_PIPELINED = 32
# Parts of a body in chunks: reading one of a single byte takes as long as one of thousands.
MOST_CHUNKS = 100_000
# Connections beyond the most, whose requests are still read: one of them may be the operator's.
_SPARE = 64
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HungUp(Exception):
    """Ends the parser in the middle of what it was given, on a connection that is closed by then."""


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's, which hangs up on a caller that is slow, says too much, or is one too many.

    The oldest connection on which no request is being answered, or whose answer is not read, makes room for a new one:
    a caller that sends its request at once is answered, however many others keep connections open and send none.
    `OpenRequests` bounds how many requests are answered for one caller.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._reads_headers = True
        self._header_bytes = 0
        self._chunks = 0
        self._waits_since = 0.0

    @property
    def answers(self) -> bool:
        """Whether a request that was received whole is being answered, and the answer is read."""
        return (
            self.cycle is not None
            and not self.cycle.response_complete
            and self._deadline is None
            and self._stalled is None
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(HEADER_SECONDS)
        if len(self.connections) > most_connections():
            waiting = [
                each for each in self.connections if isinstance(each, BoundedConnection) and not each.answers
            ]
            if len(waiting) > _SPARE:
                min(waiting, key=lambda each: each._waits_since)._hang_up()

    def data_received(self, data: bytes) -> None:
        # No more at once than there may still be of what is no body: headers, and what comes between and behind chunks.
        while data and not self.transport.is_closing():
            room = MOST_HEADER_BYTES - self._header_bytes
            if room <= 0:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
            part, data = data[:room], data[room:]
            self._header_bytes += len(part)
            super().data_received(part)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            self._hang_up()
            # The parser would read on to the end of what it was given.
            raise HungUp
        self._wait(HEADER_SECONDS)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # One behind the body would be kept as well, and nothing reads those.
        if self._reads_headers:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        self._chunks += 1
        if self._chunks > MOST_CHUNKS:
            self._hang_up()
            raise HungUp
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._reads_headers = False
        self._chunks = 0
        self._wait(BODY_SECONDS)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._reads_headers, self._header_bytes = True, 0
        self._cancel()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waits_since = self.loop.time()
        self._stalled = self.loop.call_later(STALLED_SECONDS, self._hang_up)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        if self._stalled is not None:
            self._stalled.cancel()
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        self._cancel()
        self._waits_since = self.loop.time()
        self._deadline = self.loop.call_later(seconds, self._hang_up)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


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
        url = url_of(bound)
        others = ServerAddress(*bound.getsockname()[:2]).url_for_others(loaded.settings.database_url.host)
        heartbeat = Heartbeat(runtime, "server", 0, running=lambda: (), lost=lambda: None, url=others)
        app = create_app(runtime, loaded, token.value, process_id=heartbeat.process_id)
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
