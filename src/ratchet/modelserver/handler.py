"""One connection of a client: finds its script, and answers as its turn says: late, slowly, broken, never."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from ratchet.modelserver.chat import Chat
from ratchet.modelserver.messages import Messages
from ratchet.modelserver.responses import Responses
from ratchet.modelserver.script import NoTurn, Script, Seen
from ratchet.modelserver.turn import Document, ScriptedAnswer, Turn, Wire

if TYPE_CHECKING:
    from ratchet.modelserver.server import ModelServer


_WIRES: Mapping[str, Wire] = {
    "/v1/responses": Responses(),
    "/v1/chat/completions": Chat(),
    "/v1/messages": Messages(),
}
_COUNT = "/v1/messages/count_tokens"
_LARGEST_BODY = 64 * 1024 * 1024


class Handler(BaseHTTPRequestHandler):
    """`/s/NAME/v1/…`"""

    protocol_version = "HTTP/1.1"
    server_version = "ratchet-scripted"
    # Small answers would wait for the client's acknowledgement of the one before.
    disable_nagle_algorithm = True
    scripts: ModelServer  # set by the server

    def do_GET(self) -> None:
        name, path = self._place()
        script = self.scripts.find(name)
        if script is None:
            self._refuse(Chat(), 404, self.scripts.unknown(name))
        elif path.startswith("/v1/models") and not self._accepts_key(script):
            self._refuse(Chat(), 401)
        elif path == "/v1/models":
            listed = [_model(each) for each in script.models or ("scripted",)]
            self._send({"object": "list", "data": listed, "has_more": False})
        elif path.startswith("/v1/models/") and not script.has_model(path.removeprefix("/v1/models/")):
            self._refuse(Chat(), 404)
        elif path.startswith("/v1/models/"):
            self._send(_model(path.removeprefix("/v1/models/")))
        elif path in ("", "/"):
            self._send({"script": name, "requests": len(script.requests), "problems": script.problems})
        else:
            self._refuse(Chat(), 404, f"there is nothing at {self.path}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        name, path = self._place()
        wire = _WIRES.get(path.removesuffix("/count_tokens"))
        script = self.scripts.find(name)
        try:
            body = self._body()
        except (ValueError, RecursionError) as error:
            self.close_connection = True
            self._refuse(wire or Chat(), 400, f"this is not the request of a model's client: {error}")
            return
        if script is None:
            self._refuse(wire or Chat(), 404, self.scripts.unknown(name))
        elif wire is None:
            self._refuse(Chat(), 404, f"there is nothing at {self.path}; known are {', '.join(_WIRES)}")
        elif not self._accepts_key(script):
            self._refuse(wire, 401)
        elif not script.has_model(str(body.get("model"))):
            self._refuse(wire, 404)
        elif path == _COUNT:
            self._send({"input_tokens": max(1, len(json.dumps(body)) // 4)})
        else:
            self._answer(wire, script, body)

    def _answer(self, wire: Wire, script: Script, body: dict[str, Any]) -> None:
        began = time.monotonic()
        headers = {key.lower(): value for key, value in self.headers.items()}
        messages, tools = tuple(wire.messages(body)), tuple(wire.tools(body))
        seen = Seen(self.path, headers, body, time.time(), messages, tools)
        try:
            number, turn = script.take(seen)
        except NoTurn as error:
            self._refuse(wire, 400, str(error), code="script_error")
            self.scripts.tell(script, seen, None, str(error), began)
            return
        model = str(body.get("model") or "scripted")
        answer = ScriptedAnswer(turn, f"scripted-{script.name}-{number}", model, body, int(seen.at))
        try:
            deliver(self, wire, answer)
            ending = "answered"
        except (Gone, ConnectionError) as error:
            self.close_connection = True
            ending = str(error)
        self.scripts.tell(script, seen, turn, ending, began)

    def _place(self) -> tuple[str, str]:
        """The name of the script and the path behind it."""
        path = urlsplit(self.path).path
        if not path.startswith("/s/"):
            return "", path
        name, slash, rest = path.removeprefix("/s/").partition("/")
        return name, slash + rest

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("content-length") or -1)
        if not 0 <= length <= _LARGEST_BODY:
            raise ValueError(f"it must have a content-length of at most {_LARGEST_BODY}")
        body = json.loads(self.rfile.read(length))
        if not isinstance(body, dict):
            raise ValueError("its body must be a JSON object")
        return body

    def _accepts_key(self, script: Script) -> bool:
        given = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        return script.key in (None, given)

    def _refuse(self, wire: Wire, status: int, message: str | None = None, code: str | None = None) -> None:
        send(self, status, encoded(wire.error(status, code, message)))

    def _send(self, document: Document) -> None:
        send(self, 200, encoded(document))

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: the server tells each request in its own way."""


def _model(name: str) -> Document:
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "created": 0,
        "owned_by": "ratchet",
    }


_LOOK_AGAIN_SECONDS = 0.05


class Gone(Exception):
    """The connection is of no more use: one side has closed it, or is to."""


def deliver(to: BaseHTTPRequestHandler, wire: Wire, answer: ScriptedAnswer) -> None:
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
