"""An HTTP server that looks like a git remote until it is asked: it notes the request, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HttpRemote:
    """`hang` leaves every request without an answer until the server is closed."""

    def __init__(self, *, hang: bool, status: int = 403, location: str | None = None) -> None:
        self.asked = threading.Event()
        self.headers: list[dict[str, str]] = []
        self._closing = threading.Event()
        remote = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                remote.headers.append(dict(self.headers))
                remote.asked.set()
                if hang:
                    remote._closing.wait()
                    return
                self.send_response(status)
                if location is not None:
                    self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/example/demo.git"

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def http_remote(
    *, hang: bool = False, status: int = 403, location: str | None = None
) -> Iterator[HttpRemote]:
    started = HttpRemote(hang=hang, status=status, location=location)
    try:
        yield started
    finally:
        started.close()
