"""One connection to a server of an agent, which carries one request at a time."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Protocol

import httptools

from ratchet.agents.gateway.answer import Answer, AnswerHead
from ratchet.agents.gateway.headers import Header
from ratchet.agents.gateway.limits import Limits
from ratchet.agents.gateway.refusal import Refusal
from ratchet.agents.gateway.request import Request

# What the kernel reports when bytes reach a socket that nobody reads any more.
_UNREAD = (errno.EPIPE, errno.ECONNRESET)


class NotTaken(Exception):
    """The server has not read the request, so another may be asked."""


class Broken(Exception):
    """The server has left a request without a whole answer; what it did with it is not known."""


class Source(Protocol):
    """Where a body comes from, when it comes faster than the server takes it."""

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class Backend(asyncio.Protocol):
    def __init__(
        self, port: int, connected: socket.socket, limits: Limits, lost: Callable[[Backend], None]
    ) -> None:
        self.port = port
        self.idle_since = 0.0
        self._socket = connected
        self._limits = limits
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._answer: Answer | None = None
        self._over: asyncio.Future[bool] | None = None
        self._source: Source | None = None
        self._repeatable = False
        self._unread = False
        self._has_spoken = False
        # Bytes that came since the last sign of progress: a head, or the trailers of a body, must end some time.
        self._unheard = 0
        self._begin_head()

    def is_fresh(self) -> bool:
        """Whether the server still holds its end. It tells when it does not before it would read anything more."""
        if self._transport.is_closing():
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        # The end, or bytes that nobody has asked for.
        return False

    async def carry(self, request: Request, answer: Answer, source: Source) -> bool:
        """Send a request and pass its answer on; whether the connection is good for another.

        Raises `NotTaken`, `Broken`, or the `Refusal` that the rest of the body has met.
        """
        if request.refusal is not None:
            raise request.refusal
        if self._transport.is_closing():
            raise NotTaken("it hung up at once")
        self._answer, self._source = answer, source
        self._over = self._loop.create_future()
        self._has_spoken = False
        self._unheard = 0
        # A server that ended while it read a long body may have begun to act on it.
        self._repeatable = request.complete
        harmless = request.head.method in (b"GET", b"HEAD")
        encoded, request.carrier = request.encoded(self.port), self
        source.go_on()
        self._transport.write(encoded)
        try:
            return await self._over
        except Broken as error:
            if harmless and not answer.begun:
                raise NotTaken(str(error)) from error
            raise
        finally:
            request.carrier = None
            self._answer = self._over = self._source = None
            self._transport.resume_reading()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pass_on(self, data: bytes) -> None:
        self._transport.write(data)

    def give_up(self, refusal: Refusal) -> None:
        self._end_with(refusal)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            # Nobody has asked, so nobody may take it for the answer to the next question.
            self._transport.abort()
            return
        self._has_spoken = True
        self._unheard += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("it wants to speak another protocol")
        except httptools.HttpParserError as error:
            self._break(f"its answer is not HTTP: {error.__context__ or error}")
        if self._unheard > self._limits.head_bytes:
            self._break("the head of its answer is too long")
        answer.flush()

    def eof_received(self) -> None:
        # Closed by the server before it read what was sent: the kernel has refused those bytes since.
        self._unread = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in _UNREAD

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)
        if self._over is None or self._over.done() or self._answer is None:
            return
        if self._until_close and exc is None:
            self._finish(reusable=False)
            self._answer.flush()
            return
        unread = self._unread or (isinstance(exc, OSError) and exc.errno in _UNREAD)
        reason = "it hung up" if exc is None else str(exc)
        if unread and self._repeatable and not self._has_spoken:
            self._end_with(NotTaken(reason))
        else:
            self._end_with(Broken(reason))

    def pause_writing(self) -> None:
        if self._source is not None:
            self._source.hold()

    def resume_writing(self) -> None:
        if self._source is not None:
            self._source.go_on()

    def on_message_begin(self) -> None:
        if self._over is None or self._over.done():
            raise ValueError("more came than was asked for")
        self._begin_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return
        self._headers.append((name.lower(), value))
        if len(self._headers) > self._limits.headers:
            raise ValueError("too many headers")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status < 200
        if self._interim or self._answer is None:
            return
        if sum(len(name) + len(value) for name, value in self._headers) > self._limits.head_bytes:
            raise ValueError("the head is too long")
        self._unheard = 0
        self._in_body = True
        head = self._head(status)
        self._answer.begin(head)
        if self._answer.bodiless:
            # The parser waits for a body that a HEAD does not bring.
            self._finish(reusable=False)

    def on_body(self, body: bytes) -> None:
        self._unheard = 0
        if self._answer is not None and not self._answer.bodiless:
            self._answer.piece(body)

    def on_message_complete(self) -> None:
        if not self._interim:
            self._finish(reusable=self._parser.should_keep_alive())

    def _begin_head(self) -> None:
        self._headers: list[Header] = []
        self._in_body = False
        self._interim = False
        self._until_close = False

    def _head(self, status: int) -> AnswerHead:
        head = AnswerHead(status, self._headers, None)
        length, encoding = head.value(b"content-length"), head.value(b"transfer-encoding")
        if encoding is not None and encoding.lower() != b"chunked":
            raise ValueError(f"its Transfer-Encoding is {encoding[:40]!r}")
        self._until_close = length is None and encoding is None
        return head if length is None else head._replace(length=int(length))

    def _finish(self, *, reusable: bool) -> None:
        if self._over is not None and not self._over.done() and self._answer is not None:
            self._answer.end()
            self._over.set_result(reusable)

    def _break(self, reason: str) -> None:
        self._transport.abort()
        self._end_with(Broken(reason))

    def _end_with(self, error: Exception) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)
