"""Sending an answer in the manner that its turn says: late, slowly, broken off, or not at all."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import NoReturn

from ratchet.modelserver.turn import Turn
from ratchet.modelserver.wire import Answer, Document, Wire

_LOOK_AGAIN_SECONDS = 0.05


class Gone(Exception):
    """The connection is of no more use: one side has closed it, or is to."""


def deliver(to: BaseHTTPRequestHandler, wire: Wire, answer: Answer) -> None:
    """Send `answer`. Raises `Gone` when the connection must be closed before its end."""
    turn, streamed = answer.turn, bool(answer.request.get("stream"))
    _pause(to, turn.delay_seconds)
    if turn.raw is not None:
        media_type = "text/event-stream" if streamed else "application/json"
        send(to, turn.status, turn.raw.encode(), media_type, _retry_after(turn))
    elif turn.fails or (answer.failed_in_stream and not streamed):
        status = turn.status if turn.fails else 500
        error = wire.error(status, turn.error_code, turn.error_message)
        send(to, status, encoded(error), headers=_retry_after(turn))
    elif streamed:
        _stream(to, turn, list(wire.events(answer)))
    else:
        _whole(to, turn, encoded(wire.document(answer)))


def send(
    to: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    media_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> None:
    _begin(to, status, media_type, {"content-length": str(len(body)), **(headers or {})})
    if to.command != "HEAD":
        to.wfile.write(body)


def encoded(document: Document) -> bytes:
    return json.dumps(document).encode()


def _stream(to: BaseHTTPRequestHandler, turn: Turn, events: list[bytes]) -> None:
    ends_after = _ends_after(turn, len(events))
    if ends_after != 0:
        _begin(to, 200, "text/event-stream", {"transfer-encoding": "chunked", "cache-control": "no-store"})
    for event in events[:ends_after]:
        to.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        _pause(to, turn.pace_seconds)
    if ends_after is not None:
        _abandon(to, turn, ends_after)
    to.wfile.write(b"0\r\n\r\n")


def _whole(to: BaseHTTPRequestHandler, turn: Turn, body: bytes) -> None:
    """An answer that is not streamed. Where a stream would end early, half of it is sent."""
    ends_after = _ends_after(turn, 2)
    if ends_after is None:
        send(to, 200, body)
        return
    if ends_after > 0:
        _begin(to, 200, "application/json", {"content-length": str(len(body))})
        to.wfile.write(body[: len(body) // 2])
    _abandon(to, turn, ends_after)


def _begin(to: BaseHTTPRequestHandler, status: int, media_type: str, headers: Mapping[str, str]) -> None:
    to.send_response(status)
    for name, value in {"content-type": media_type, "x-ratchet-scripted": "1", **headers}.items():
        to.send_header(name, value)
    to.end_headers()


def _ends_after(turn: Turn, events: int) -> int | None:
    """How many of these events are sent if the answer ends early; always fewer than all of them."""
    early = turn.hang_after if turn.cut_after is None else turn.cut_after
    return None if early is None else min(early, events - 1)


def _abandon(to: BaseHTTPRequestHandler, turn: Turn, sent: int) -> NoReturn:
    """Cut the connection, or fall silent until the other side does."""
    if turn.cut_after is not None:
        raise Gone(f"cut after {sent} events")
    while _is_open(to, None):
        time.sleep(_LOOK_AGAIN_SECONDS)
    raise Gone(f"hung after {sent} events until the client went away")


def _pause(to: BaseHTTPRequestHandler, seconds: float) -> None:
    """Wait, but not for a client that has gone away."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not _is_open(to, left):
            raise Gone("the client went away")
        time.sleep(min(_LOOK_AGAIN_SECONDS, max(0, until - time.monotonic())))


def _is_open(to: BaseHTTPRequestHandler, seconds: float | None) -> bool:
    """Wait this long, or until the client sends or closes; whether the connection is still open.

    A client that sends its next request early ends each wait at once, which is why the callers rest in between.
    """
    waiting = select.poll()
    waiting.register(to.connection, select.POLLIN)
    try:
        readable = waiting.poll(None if seconds is None else seconds * 1000)
        return not readable or to.connection.recv(1, socket.MSG_PEEK) != b""
    except OSError:
        return False


def _retry_after(turn: Turn) -> dict[str, str]:
    return {} if turn.retry_after is None else {"retry-after": f"{turn.retry_after:g}"}
