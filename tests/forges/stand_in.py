"""A small HTTP server on this machine that stands in for a forge: it keeps what it is told, and records who asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request, as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Said:
    """One answer."""

    status: int
    value: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class StandIn:
    """Answers by `answer`, which a forge defines. Requests come one at a time."""

    token = "a-token-of-the-forge"

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.next: list[Said] = []
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def say_next(self, status: int, value: Any = None, **headers: str) -> None:
        """Answer the next request with this instead."""
        self.next.append(
            Said(status, value, {name.replace("_", "-"): text for name, text in headers.items()})
        )

    def asked(self, method: str, ending: str = "") -> list[Asked]:
        return [each for each in self.requests if each.method == method and each.path.endswith(ending)]

    def answer(self, asked: Asked) -> Said:
        raise NotImplementedError

    def _take(self, asked: Asked) -> Said:
        with self.lock:
            self.requests.append(asked)
            if self.next:
                return self.next.pop(0)
            if asked.headers.get("authorization") != f"Bearer {self.token}":
                return Said(401, {"message": "Bad credentials"})
            return self.answer(asked)

    def _handler(outer) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                content = self.rfile.read(length)
                parts = urlsplit(self.path)
                asked = Asked(
                    self.command,
                    parts.path,
                    dict(parse_qsl(parts.query)),
                    {name.lower(): value for name, value in self.headers.items()},
                    json.loads(content) if content else None,
                )
                said = outer._take(asked)
                body = b"" if said.value is None else json.dumps(said.value).encode()
                self.send_response(said.status)
                for name, value in said.headers.items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

            def log_message(self, *_: object) -> None:
                pass

        return Handler
