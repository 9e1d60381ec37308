"""Which headers a message keeps on its way through the gateway."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
