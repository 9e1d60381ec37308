"""One connection of a client: finds the script that a request is for, and has its answer sent."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ratchet.modelserver.chat import Chat
from ratchet.modelserver.delivery import Gone, deliver, encoded, send
from ratchet.modelserver.messages import Messages
from ratchet.modelserver.responses import Responses
from ratchet.modelserver.script import NoTurn, Script, Seen
from ratchet.modelserver.wire import Answer, Document, Wire

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
        answer = Answer(turn, f"scripted-{script.name}-{number}", model, body, int(seen.at))
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
