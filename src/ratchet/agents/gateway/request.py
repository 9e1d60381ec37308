"""A caller's request: parsed strictly, and framed again for a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

import httptools

from ratchet.agents.gateway.routes import (
    AGENT_PATH,
    ARCHITECT_PATH,
    AgentRoute,
    Architect,
    GatewayLimits,
    Refusal,
)

Header = tuple[bytes, bytes]
"""A name in lower case, and a value."""

# They speak of one connection, and each side of the gateway has its own.
_OF_A_CONNECTION = frozenset(
    [
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ]
)
# The gateway writes or keeps these itself. Cookies of this host belong to every port of it, so agents get and set none.
_NOT_FOR_SERVERS = _OF_A_CONNECTION | frozenset(
    [
        b"authorization",
        b"content-length",
        b"cookie",
        b"expect",
        b"forwarded",
        b"host",
        b"origin",
        b"x-real-ip",
    ]
)
_NOT_FOR_CALLERS = _OF_A_CONNECTION | frozenset([b"content-length", b"set-cookie", b"set-cookie2"])


def for_server(headers: Iterable[Header]) -> bytes:
    """The lines of a request that its server may see."""
    return b"".join(
        b"%b: %b\r\n" % header
        for header in headers
        if header[0] not in _NOT_FOR_SERVERS and not header[0].startswith(b"x-forwarded-")
    )


def for_caller(headers: Iterable[Header]) -> bytes:
    """The lines of an answer that its caller may see."""
    return b"".join(b"%b: %b\r\n" % header for header in headers if header[0] not in _NOT_FOR_CALLERS)


def without_named(headers: Sequence[Header]) -> Sequence[Header]:
    """The headers without those that `Connection` declares to be of this connection alone."""
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    if named <= {b"close", b"keep-alive"}:
        return headers
    return [header for header in headers if header[0] not in named]


METHODS = (b"GET", b"HEAD", b"POST", b"DELETE")
_SESSION = re.compile(rb"[\x21-\x7e]{1,256}")
# The gateway decides by these: each may come once, and none may be declared to be of one connection alone.
_DECISIVE = (
    b"authorization",
    b"content-length",
    b"expect",
    b"host",
    b"mcp-session-id",
    b"origin",
    b"transfer-encoding",
)


class RequestHead(NamedTuple):
    """`length` is that of the body, and `None` while it comes in chunks."""

    method: bytes
    target: bytes
    version: str
    host: bytes
    origin: bytes | None
    authorization: bytes | None
    session: str | None
    length: int | None
    expects: bool
    persistent: bool
    lines: bytes

    @property
    def has_body(self) -> bool:
        return self.length != 0


def read_head(
    method: bytes, target: bytes, version: str, headers: Sequence[Header], *, persistent: bool
) -> RequestHead:
    """Raises `Refusal` for whatever two readers could understand differently."""
    if version not in ("1.0", "1.1"):
        raise Refusal(505, f"HTTP/{version} is not served here", hint="use HTTP/1.1")
    known: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _DECISIVE:
            if name in known:
                raise Refusal(400, f"the header {name.decode()} comes twice")
            known[name] = value
    kept = without_named(headers)
    if kept is not headers and not known.keys() <= {name for name, _ in kept}:
        raise Refusal(400, "Connection names a header that belongs to the request")
    return RequestHead(
        method,
        target,
        version,
        _host(known),
        known.get(b"origin"),
        known.get(b"authorization"),
        _session(known),
        _length(known, version),
        _expects(known),
        persistent and version == "1.1",
        for_server(kept),
    )


def is_session(text: bytes) -> bool:
    """Whether the protocol allows this to be the id of a session."""
    return _SESSION.fullmatch(text) is not None


class BodyWriter(Protocol):
    """What takes the rest of a body to a server, and brings the answer no faster than its caller reads."""

    def pass_on(self, data: bytes) -> None: ...

    def give_up(self, refusal: Refusal) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class ProxyRequest:
    """A request and as much of its body as has come and is not passed on yet."""

    __slots__ = ("carrier", "complete", "head", "parts", "refusal", "route", "size", "upstream")

    def __init__(self, head: RequestHead, route: AgentRoute | Architect) -> None:
        self.head = head
        self.route = route
        self.parts: list[bytes] = []
        self.size = 0
        self.complete = False
        self.carrier: BodyWriter | None = None
        # By what the server knows the session, where that is not what its client calls it.
        self.upstream: bytes | None = None
        # Set when the rest of the body turns out to be unacceptable.
        self.refusal: Refusal | None = None

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self.carrier is None:
            self.parts.append(data)
        else:
            self.carrier.pass_on(self._framed(data))

    def end(self) -> None:
        self.complete = True
        if self.carrier is not None and self.head.length is None:
            self.carrier.pass_on(b"0\r\n\r\n")

    def fail(self, refusal: Refusal) -> None:
        self.refusal = refusal
        if self.carrier is not None:
            self.carrier.give_up(refusal)

    def encoded(self, port: int) -> bytes:
        """The head, and what there is of the body. A body that is whole is sent with its length."""
        head, lines = self.head, self.head.lines
        if self.upstream is not None and head.session is not None:
            known = b"mcp-session-id: %b\r\n"
            lines = lines.replace(known % head.session.encode(), known % self.upstream)
        start = [head.method, b" ", self._path(), b" HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % port, lines]
        if isinstance(self.route, Architect) and head.authorization is not None:
            start.append(b"authorization: %b\r\n" % head.authorization)
        if self.complete and (head.has_body or head.method == b"POST"):
            return b"".join([*start, b"content-length: %d\r\n\r\n" % self.size, *self.parts])
        if not head.has_body:
            return b"".join([*start, b"\r\n"])
        if head.length is not None:
            return b"".join([*start, b"content-length: %d\r\n\r\n" % head.length, *self.parts])
        return b"".join([*start, b"transfer-encoding: chunked\r\n\r\n", *map(self._framed, self.parts)])

    def _framed(self, data: bytes) -> bytes:
        return data if self.head.length is not None else b"%x\r\n%b\r\n" % (len(data), data)

    def _path(self) -> bytes:
        return (ARCHITECT_PATH if isinstance(self.route, Architect) else AGENT_PATH).encode()


def _host(known: dict[bytes, bytes]) -> bytes:
    host = known.get(b"host")
    if host is None:
        raise Refusal(400, "the request has no Host header")
    return host.lower()


def _session(known: dict[bytes, bytes]) -> str | None:
    session = known.get(b"mcp-session-id")
    if session is None:
        return None
    if not is_session(session):
        raise Refusal(400, "Mcp-Session-Id is not made of 1 to 256 visible characters")
    return session.decode("ascii")


def _length(known: dict[bytes, bytes], version: str) -> int | None:
    length, encoding = known.get(b"content-length"), known.get(b"transfer-encoding")
    if encoding is None:
        return 0 if length is None else int(length)
    if length is not None or version != "1.1":
        raise Refusal(400, "Transfer-Encoding does not go with Content-Length or HTTP/1.0")
    if encoding.lower() != b"chunked":
        raise Refusal(501, f"the Transfer-Encoding {encoding[:40].decode('latin-1')!r} is not served here")
    return None


def _expects(known: dict[bytes, bytes]) -> bool:
    expected = known.get(b"expect")
    if expected is not None and expected.lower() != b"100-continue":
        raise Refusal(417, f"nothing here fulfils Expect: {expected[:40].decode('latin-1')}")
    return expected is not None


class ParserStage(Enum):
    """What is being read."""

    HEAD = auto()
    BODY = auto()
    NOTHING = auto()
    """Between two requests."""
    WASTE = auto()
    """Nothing counts any more; the caller may still be reading what it was told last."""


class RequestParser:
    """Hands each request on as soon as it is whole, or too long to be held back.

    What cannot be a request is handed on as a `Refusal`, and after that nothing is.
    """

    def __init__(
        self,
        limits: GatewayLimits,
        admit: Callable[[RequestHead], AgentRoute | Architect],
        begun: Callable[[], None],
        hand_on: Callable[[ProxyRequest | Refusal], None],
    ) -> None:
        """`begun` hears of a head that was admitted, before anything of its body."""
        self._limits = limits
        self._admit = admit
        self._begun = begun
        self._hand_on = hand_on
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[Header] = []
        self._target = b""
        self._request: ProxyRequest | None = None
        # Bytes that came since the last sign of progress: a head, or the trailers of a body, must end some time.
        self._unheard = 0
        # Whether the caller sends its body only when it is told to.
        self.is_expectant = False
        self.enter(ParserStage.HEAD)

    @property
    def is_full(self) -> bool:
        """Whether a long body waits to be read."""
        request = self._request
        return request is not None and request.carrier is None and self._is_long(request)

    def enter(self, stage: ParserStage) -> None:
        self.stage = stage
        self.since = self._loop.time()
        if stage is not ParserStage.HEAD:
            self._unheard = 0

    def feed(self, data: bytes) -> None:
        if self.stage is ParserStage.WASTE:
            return
        self._unheard += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(_upgrade())
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, Refusal):
                raise
            self.refuse(cause or Refusal(400, f"this is not HTTP/1.1: {error}"))
        if self._unheard > self._limits.head_bytes:
            self.refuse(self._too_long())

    def refuse(self, refusal: Refusal) -> None:
        """Read no further. A request that is being answered already hears it, any other is answered with it."""
        if self.stage is ParserStage.WASTE:
            return
        request, self._request = self._request, None
        self.enter(ParserStage.WASTE)
        if request is not None and self._is_long(request):
            request.fail(refusal)
        else:
            self._hand_on(refusal)

    def refuse_late(self, now: float, *, is_held: bool) -> None:
        """Give up on a caller that takes too long; one that is not read from is not to blame."""
        limits, waited = self._limits, now - self.since
        if self.stage is ParserStage.HEAD and waited > limits.head_seconds:
            self.refuse(
                Refusal(408, f"the head of the request did not come within {limits.head_seconds:g} s")
            )
        elif self.stage is ParserStage.BODY and not is_held and waited > limits.body_seconds:
            self.refuse(
                Refusal(408, f"the body of the request did not continue for {limits.body_seconds:g} s")
            )

    def on_message_begin(self) -> None:
        self._headers = []
        self._target = b""
        self.enter(ParserStage.HEAD)

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage is not ParserStage.HEAD:
            return  # a trailer, which is not waited for
        self._headers.append((name.lower(), value))
        if len(self._headers) > self._limits.headers:
            raise self._too_long()

    def on_headers_complete(self) -> None:
        parser, limits = self._parser, self._limits
        size = len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > limits.head_bytes:
            raise self._too_long()
        if parser.should_upgrade():
            raise _upgrade()
        head = read_head(
            parser.get_method(),
            self._target,
            parser.get_http_version(),
            self._headers,
            persistent=parser.should_keep_alive(),
        )
        route = self._admit(head)
        if head.length is not None and head.length > limits.body_bytes:
            raise self._too_large()
        self._request = ProxyRequest(head, route)
        self.is_expectant = head.expects and head.has_body
        self.enter(ParserStage.BODY)
        self._begun()

    def on_body(self, body: bytes) -> None:
        request = self._request
        assert request is not None
        if request.size + len(body) > self._limits.body_bytes:
            raise self._too_large()
        was_long = self._is_long(request)
        request.add(body)
        self.is_expectant = False
        self.enter(ParserStage.BODY)
        if self._is_long(request) and not was_long:
            self._hand_on(request)

    def on_message_complete(self) -> None:
        request, self._request = self._request, None
        assert request is not None
        self.is_expectant = False
        self.enter(ParserStage.NOTHING)
        request.end()
        if not self._is_long(request):
            self._hand_on(request)

    def _is_long(self, request: ProxyRequest) -> bool:
        return request.size >= self._limits.held_bytes

    def _too_long(self) -> Refusal:
        limits = self._limits
        return Refusal(
            431, f"the head of a request may have {limits.head_bytes:,} bytes and {limits.headers} headers"
        )

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body of a request may have {self._limits.body_bytes:,} bytes")


def _upgrade() -> Refusal:
    return Refusal(501, "only HTTP/1.1 is spoken here", hint="leave out Upgrade, and do not use CONNECT")
