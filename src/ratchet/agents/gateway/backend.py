"""Connections to the servers of agents, pooled; each carries one request at a time and its response."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import httptools

from ratchet.agents.call_record import MOST_BYTES
from ratchet.agents.gateway.request import Header, ProxyRequest, RequestHead, for_caller, without_named
from ratchet.agents.gateway.routes import STATUS_LINES, GatewayLimits, Refusal

_NO_CONTENT = (204, 304)


class AnswerHead(NamedTuple):
    """`length` is that of the body, and `None` when only its end tells."""

    status: int
    headers: Sequence[Header]
    length: int | None

    def value(self, name: bytes) -> bytes | None:
        return next((value for known, value in self.headers if known == name), None)


class ProxyResponse:
    """Takes the answer piece by piece. What comes together is written together.

    A head that promises a length waits for the first of its body, since it is of no use before: servers write the two
    one after the other, and a caller would be woken twice. The head of a stream is passed on at once.
    """

    __slots__ = (
        "_begin",
        "_chunked",
        "_end",
        "_is_led_over",
        "_pieces",
        "_request",
        "_transport",
        "_waits",
        "begun",
        "heard",
        "news",
        "session",
    )

    def __init__(
        self, request: RequestHead, transport: asyncio.Transport, begin: Callable[[AnswerHead], None]
    ) -> None:
        """`begin` hears of the head before the caller does."""
        self._request = request
        self._transport = transport
        self._begin = begin
        self._pieces: list[bytes] = []
        self._chunked = False
        self._waits = False
        # Whether the caller has been told anything.
        self.begun = False
        # The body, where it is to be recorded.
        self.heard: bytearray | None = None
        # What the client calls the session, where its server has another name for it.
        self.session: bytes | None = None
        # What a stream begins with, and goes on with where it is led to another server.
        self.news: Callable[[], bytes] = bytes
        self._end = b""
        self._is_led_over = False

    @property
    def bodiless(self) -> bool:
        """Whether the caller has asked for a head alone."""
        return self._request.method == b"HEAD"

    def lead_over(self) -> bool:
        """Have another server continue this stream; whether that can be now."""
        if self.begun and not (self._chunked and self._end in (b"", b"\n\n")):
            return False
        self._is_led_over = self.begun
        return True

    def begin(self, head: AnswerHead) -> None:
        if self._is_led_over:
            # The caller has read a head already. What is no stream of news ends its own.
            if head.status != 200 or head.length is not None:
                raise ValueError("it does not continue the stream")
            self._tell_news()
            return
        self._begin(head)
        if 400 <= head.status < 500:
            # No tool was called: the request has no session, or is none.
            self.heard = None
        has_body = not self.bodiless and head.status not in _NO_CONTENT and head.length != 0
        self._chunked = has_body and head.length is None and self._request.version == "1.1"
        self._waits = has_body and head.length is not None
        headers = without_named(head.headers)
        if self.session is not None:
            headers = [
                (name, self.session if name == b"mcp-session-id" else value) for name, value in headers
            ]
        self._pieces += [_status_line(head.status), for_caller(headers)]
        if self._chunked:
            self._pieces.append(b"transfer-encoding: chunked\r\n")
        elif head.length is not None and head.status not in _NO_CONTENT:
            self._pieces.append(b"content-length: %d\r\n" % head.length)
        self._pieces.append(b"\r\n" if self._request.persistent else b"connection: close\r\n\r\n")
        if self._chunked and head.status == 200:
            self._tell_news()

    def _tell_news(self) -> None:
        if news := self.news():
            self.piece(news)

    def piece(self, data: bytes) -> None:
        self._waits = False
        if self.heard is not None and len(self.heard) <= MOST_BYTES:
            self.heard += data
        if self._chunked:
            self._end = (self._end + data[-4:]).replace(b"\r", b"")[-2:]
        self._pieces.append(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self) -> None:
        if self._chunked:
            self._pieces.append(b"0\r\n\r\n")

    def flush(self) -> None:
        if self._pieces and not self._waits:
            self.begun = True
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._transport.write(data)


def _status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


# What the kernel reports when bytes reach a socket that is no longer read.
_UNREAD = (errno.EPIPE, errno.ECONNRESET)


class NotTaken(Exception):
    """The server has not read the request, so another may be asked."""


class ConnectionBroken(Exception):
    """The server has left a request without a whole answer; what it did with it is not known."""


class BodySource(Protocol):
    """Where a body comes from, when it comes faster than the server takes it."""

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class Backend(asyncio.Protocol):
    def __init__(
        self, port: int, connected: socket.socket, limits: GatewayLimits, lost: Callable[[Backend], None]
    ) -> None:
        self.port = port
        self.idle_since = 0.0
        self._socket = connected
        self._limits = limits
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._answer: ProxyResponse | None = None
        self._over: asyncio.Future[bool] | None = None
        self._source: BodySource | None = None
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
        # The end, or bytes that were not asked for.
        return False

    async def carry(self, request: ProxyRequest, answer: ProxyResponse, source: BodySource) -> bool:
        """Send a request and pass its answer on; whether the connection is good for another.

        Raises `NotTaken`, `ConnectionBroken`, or the `Refusal` that the rest of the body has met.
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
        except ConnectionBroken as error:
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
            # It was not asked for, so it must not become the answer to the next question.
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
            self._end_with(ConnectionBroken(reason))

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
        self._end_with(ConnectionBroken(reason))

    def _end_with(self, error: Exception) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)


class Pool:
    """Every caller has at most one request under way, so the connections in use are as many as the callers at most."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._idle: dict[int, list[Backend]] = defaultdict(list)

    async def take(self, port: int, *, new: bool) -> Backend:
        """A connection to a server of this machine. Raises `OSError`."""
        idle = self._idle.get(port)
        while idle and not new:
            backend = idle.pop()
            if backend.is_fresh():
                return backend
            backend.abort()
        return await self._connect(port)

    def give_back(self, backend: Backend) -> None:
        idle = self._idle[backend.port]
        if len(idle) >= self._limits.idle_backends or not backend.is_fresh():
            backend.close()
            return
        backend.idle_since = asyncio.get_running_loop().time()
        idle.append(backend)

    def look(self, now: float) -> None:
        """Hang up where nothing was asked for a while."""
        overdue = now - self._limits.idle_backend_seconds
        for port, idle in list(self._idle.items()):
            for backend in [each for each in idle if each.idle_since < overdue]:
                backend.close()
                idle.remove(backend)
            if not idle:
                del self._idle[port]

    def close(self) -> None:
        for idle in self._idle.values():
            for backend in idle:
                backend.abort()
        self._idle.clear()

    async def _connect(self, port: int) -> Backend:
        loop = asyncio.get_running_loop()
        # Named as TCP, or asyncio does not switch off Nagle.
        connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            connected.setblocking(False)
            async with asyncio.timeout(self._limits.connect_seconds):
                await loop.sock_connect(connected, ("127.0.0.1", port))
            _, backend = await loop.create_connection(
                lambda: Backend(port, connected, self._limits, self._forget), sock=connected
            )
        except BaseException:
            connected.close()
            raise
        return backend

    def _forget(self, backend: Backend) -> None:
        idle = self._idle.get(backend.port, [])
        if backend in idle:
            idle.remove(backend)
