"""A request as its caller sent it, read strictly and framed anew for a server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ratchet.agents.gateway.directory import Route
from ratchet.agents.gateway.headers import Header, for_server, without_named
from ratchet.agents.gateway.refusal import Refusal
from ratchet.agents.gateway.routes import AGENT_PATH, ARCHITECT_PATH, Architect

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


class Carrier(Protocol):
    """What takes the rest of a body to a server, and brings the answer no faster than its caller reads."""

    def pass_on(self, data: bytes) -> None: ...

    def give_up(self, refusal: Refusal) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Request:
    """A request and as much of its body as has come and is not passed on yet."""

    __slots__ = ("carrier", "complete", "head", "parts", "refusal", "route", "size")

    def __init__(self, head: RequestHead, route: Route | Architect) -> None:
        self.head = head
        self.route = route
        self.parts: list[bytes] = []
        self.size = 0
        self.complete = False
        self.carrier: Carrier | None = None
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
        head = self.head
        start = [head.method, b" ", self._path(), b" HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % port, head.lines]
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
