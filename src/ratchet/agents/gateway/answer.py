"""An answer on its way from a server to a caller, framed anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ratchet.agents.gateway.headers import Header, for_caller, without_named
from ratchet.agents.gateway.refusal import STATUS_LINES
from ratchet.agents.gateway.request import RequestHead

_NO_CONTENT = (204, 304)


class AnswerHead(NamedTuple):
    """`length` is that of the body, and `None` when only its end tells."""

    status: int
    headers: Sequence[Header]
    length: int | None

    def value(self, name: bytes) -> bytes | None:
        return next((value for known, value in self.headers if known == name), None)


class Answer:
    """Takes the answer piece by piece. What comes together is written together.

    A head that promises a length waits for the first of its body, since it is of no use before: servers write the two
    one after the other, and a caller would be woken twice. The head of a stream is passed on at once.
    """

    __slots__ = ("_begin", "_chunked", "_pieces", "_request", "_transport", "_waits", "begun")

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

    @property
    def bodiless(self) -> bool:
        """Whether the caller has asked for a head alone."""
        return self._request.method == b"HEAD"

    def begin(self, head: AnswerHead) -> None:
        self._begin(head)
        has_body = not self.bodiless and head.status not in _NO_CONTENT and head.length != 0
        self._chunked = has_body and head.length is None and self._request.version == "1.1"
        self._waits = has_body and head.length is not None
        self._pieces += [_status_line(head.status), for_caller(without_named(head.headers))]
        if self._chunked:
            self._pieces.append(b"transfer-encoding: chunked\r\n")
        elif head.length is not None and head.status not in _NO_CONTENT:
            self._pieces.append(b"content-length: %d\r\n" % head.length)
        self._pieces.append(b"\r\n" if self._request.persistent else b"connection: close\r\n\r\n")

    def piece(self, data: bytes) -> None:
        self._waits = False
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
