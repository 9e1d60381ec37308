"""The server: scripts behind URLs on the loopback interface, in threads of this process."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

from ratchet.kernel import Missing
from ratchet.modelserver.chat import ChatCompletions
from ratchet.modelserver.messages import Messages
from ratchet.modelserver.responses import Responses
from ratchet.modelserver.script import Ask, NoTurn, Script, Seen, check_name
from ratchet.modelserver.turn import Document, ScriptedAnswer, Turn, Wire

_WIRES: Mapping[str, Wire] = {
    "/v1/responses": Responses(),
    "/v1/chat/completions": ChatCompletions(),
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
            self._refuse(ChatCompletions(), 404, self.scripts.unknown(name))
        elif path.startswith("/v1/models") and not self._accepts_key(script):
            self._refuse(ChatCompletions(), 401)
        elif path == "/v1/models":
            listed = [_model(each) for each in script.models or ("scripted",)]
            self._send({"object": "list", "data": listed, "has_more": False})
        elif path.startswith("/v1/models/") and not script.has_model(path.removeprefix("/v1/models/")):
            self._refuse(ChatCompletions(), 404)
        elif path.startswith("/v1/models/"):
            self._send(_model(path.removeprefix("/v1/models/")))
        elif path in ("", "/"):
            self._send({"script": name, "requests": len(script.requests), "problems": script.problems})
        else:
            self._refuse(ChatCompletions(), 404, f"there is nothing at {self.path}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        name, path = self._place()
        wire = _WIRES.get(path.removesuffix("/count_tokens"))
        script = self.scripts.find(name)
        try:
            body = self._body()
        except (ValueError, RecursionError) as error:
            self.close_connection = True
            self._refuse(
                wire or ChatCompletions(), 400, f"this is not the request of a model's client: {error}"
            )
            return
        if script is None:
            self._refuse(wire or ChatCompletions(), 404, self.scripts.unknown(name))
        elif wire is None:
            self._refuse(
                ChatCompletions(), 404, f"there is nothing at {self.path}; known are {', '.join(_WIRES)}"
            )
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


_PATIENCE_SECONDS = 5


class ModelListener(socketserver.TCPServer):
    """Serves until `close`."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._clients: dict[threading.Thread, socket.socket] = {}
        # Clients come and go while they are counted.
        self._lock = threading.Lock()
        super().__init__(*args)

    def close(self) -> None:
        """Close every connection, wherever its thread waits, and wait until the threads have ended."""
        self.shutdown()
        self.server_close()
        with self._lock:
            clients = dict(self._clients)
        for connection in clients.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in clients:
            thread.join(_PATIENCE_SECONDS)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self._serve, args=(request, client_address), daemon=True)
        with self._lock:
            self._clients[thread] = request
        thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave at any time; anything else is a mistake of ours that must be seen."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001 - the end of one client is not the end of the others
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._lock:
                del self._clients[threading.current_thread()]


_HOST = "127.0.0.1"
# How long stopping may take; the loop of the standard library looks this often whether it is to end.
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and how it ended, for a log."""

    script: str
    seen: Seen
    turn: Turn | None
    ending: str
    seconds: float


class ModelServer:
    """Scripted models at `/s/NAME`. Use it as a context manager; nothing of it is left afterwards."""

    def __init__(self, *, port: int = 0, watch: Callable[[Exchange], object] | None = None) -> None:
        self._port = port
        self._watch = watch
        self._scripts: dict[str, Script] = {}
        self._listener: ModelListener | None = None
        # Clients are served at the same time; who watches hears of one exchange at a time.
        self._telling = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        if self._listener is not None:
            return
        try:
            self._listener = ModelListener((_HOST, self._port), type("Bound", (Handler,), {"scripts": self}))
        except OSError as error:
            raise Missing(
                f"port {self._port} of {_HOST} cannot be used: {error}", hint="port 0 takes a free one"
            ) from error
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(_POLL_SECONDS,), name="model-server", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close every connection, those that hang included, and wait until nothing runs any more."""
        if self._listener is not None:
            self._listener.close()
            self._thread.join()
            self._listener = None

    def script(
        self,
        name: str,
        turns: Sequence[Turn] | Ask,
        *,
        key: str | None = None,
        models: Sequence[str] | None = None,
    ) -> Script:
        """Put this script at `/s/NAME`, in the place of the one that was there.

        A function is asked with the body of each request, one request at a time. With a `key` every other one is
        refused (401), and with `models` every other model (404); otherwise any will do.
        """
        script = self._scripts[check_name(name)] = Script(name, turns, key=key, models=models)
        return script

    @property
    def url(self) -> str:
        if self._listener is None:
            raise Missing("the model server is not running", hint="use it in a `with` block")
        return f"http://{_HOST}:{self._listener.server_address[1]}"

    def openai_url(self, name: str) -> str:
        """The base URL for OpenAI clients, Codex among them."""
        return f"{self.url}/s/{name}/v1"

    def anthropic_url(self, name: str) -> str:
        """The base URL for Anthropic clients, Claude among them."""
        return f"{self.url}/s/{name}"

    def find(self, name: str) -> Script | None:
        return self._scripts.get(name)

    def unknown(self, name: str) -> str:
        return f"there is no script {name!r}; there are: {', '.join(sorted(self._scripts)) or 'none'}"

    def tell(self, script: Script, seen: Seen, turn: Turn | None, ending: str, began: float) -> None:
        if self._watch is None:
            return
        with self._telling:
            self._watch(Exchange(script.name, seen, turn, ending, time.monotonic() - began))


def codex_config(openai_url: str, *, model: str = "scripted") -> str:
    """A `config.toml` for `$CODEX_HOME`. Any model name does; `gpt-5.5` is offered `apply_patch` as a tool."""
    return f"""\
model = "{model}"
model_provider = "scripted"
allow_login_shell = false
web_search = "disabled"

[model_providers.scripted]
name = "scripted"
base_url = "{openai_url}"
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = 10000

[analytics]
enabled = false

[features]
plugins = false
unbounded_connection_retries = false

[sandbox_workspace_write]
exclude_slash_tmp = true
"""


def claude_environment(anthropic_url: str) -> Mapping[str, str]:
    """Variables for Claude; without them it would retry, and call home."""
    return {
        "ANTHROPIC_BASE_URL": anthropic_url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }


def openai_environment(openai_url: str) -> Mapping[str, str]:
    """Variables for OpenAI's own clients and for what is compatible with them, Ollama's among it."""
    return {"OPENAI_BASE_URL": openai_url, "OPENAI_API_KEY": "scripted", "OLLAMA_BASE_URL": openai_url}
