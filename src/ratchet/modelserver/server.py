"""The server: scripts behind URLs on the loopback interface, in threads of this process."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ratchet.kernel import Missing
from ratchet.modelserver.handler import Handler
from ratchet.modelserver.script import Ask, Script, Seen, check_name
from ratchet.modelserver.turn import Turn

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
