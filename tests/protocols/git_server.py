"""Git over HTTP, for who shows the token: `git http-backend` behind a small server."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.protocols.world import git


@contextmanager
def git_server(remote: Path, token: str) -> Iterator[str]:
    """The address of a bare repository. Whoever comes without the token is sent away."""
    git(remote, "config", "http.receivepack", "true")
    wanted = "Basic " + base64.b64encode(f"x-access-token:{token}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            done = subprocess.run(
                ["git", "http-backend"],
                input=self._body(),
                env={
                    "PATH": os.environ["PATH"],
                    "GIT_PROJECT_ROOT": str(remote.parent),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "REMOTE_USER": "ada",
                    "REQUEST_METHOD": self.command,
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                },
                capture_output=True,
                check=True,
            )
            self._answer(done.stdout)

        do_POST = do_GET

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, output: bytes) -> None:
            head, _, body = output.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/{remote.name}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
