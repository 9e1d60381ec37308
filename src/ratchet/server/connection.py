"""Connections of the server: how many there are, and how long and how much a caller may take to say what it wants."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADER_BYTES = 64 * 1024
HEADER_SECONDS = 10.0
# From the end of the headers to the end of the body.
BODY_SECONDS = 120.0
# How long a caller may leave a full buffer unread.
STALLED_SECONDS = 60.0
_MOST_CONNECTIONS = 4096
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_connections() -> int:
    """So many that work, the database and agents still find descriptors when all of them are open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft // 2, _MOST_CONNECTIONS) if soft != resource.RLIM_INFINITY else _MOST_CONNECTIONS


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's, which hangs up on a caller that is slow, says too much, or is one too many.

    The oldest connection on which no request is being answered makes room for a new one: a caller that sends its
    request at once is answered, however many others keep connections open and send none.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._reads_headers = True
        self._header_bytes = 0
        self._waits_since = 0.0

    @property
    def answers(self) -> bool:
        """Whether a request that was received whole is being answered."""
        return self.cycle is not None and not self.cycle.response_complete and self._deadline is None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(HEADER_SECONDS)
        if len(self.connections) > most_connections():
            waiting = [
                each for each in self.connections if isinstance(each, BoundedConnection) and not each.answers
            ]
            min(waiting, key=lambda each: each._waits_since)._hang_up()

    def data_received(self, data: bytes) -> None:
        # No more at once than headers may still have: what is behind them is the body.
        while data and not self.transport.is_closing():
            room = MOST_HEADER_BYTES - self._header_bytes if self._reads_headers else len(data)
            if room <= 0:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
            part, data = data[:room], data[room:]
            self._header_bytes += len(part) if self._reads_headers else 0
            super().data_received(part)

    def on_message_begin(self) -> None:
        self._wait(HEADER_SECONDS)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._reads_headers = False
        self._wait(BODY_SECONDS)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._reads_headers, self._header_bytes = True, 0
        self._cancel()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
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
