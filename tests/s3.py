"""A server that speaks S3 (moto's), in a process of its own, for the session: python -m tests.s3."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}


@dataclass(frozen=True)
class S3Server:
    process: subprocess.Popen[str]
    address: str
    numbers: count[int]

    def new_bucket(self) -> str:
        """The address of an empty bucket, as a setting takes it."""
        name = f"bucket-{next(self.numbers)}"
        with urllib.request.urlopen(urllib.request.Request(f"{self.address}/{name}", method="PUT")):
            return f"s3://{name}/team?endpoint={self.address}"

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def start_s3() -> S3Server:
    command = [sys.executable, "-W", "ignore", "-m", "tests.s3"]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        env={**os.environ, **KEYS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    assert port.isdigit(), "the S3 server did not start"
    return S3Server(process, f"http://127.0.0.1:{port}", count())


Trouble = Callable[[str, bytes], tuple[int, bytes]]
"""What becomes of an answer to a method, given its content; not to answer at all it raises `TimeoutError`."""


@contextlib.contextmanager
def troubled(address: str, trouble: Trouble) -> Iterator[str]:
    """The address of a bucket whose server answers as `trouble` has it."""
    behind = urlsplit(address.partition("endpoint=")[2])
    closing = threading.Event()

    class Front(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection(behind.hostname or "", behind.port)
            with contextlib.closing(connection):
                headers = {name: value for name, value in self.headers.items() if name != "Connection"}
                connection.request(self.command, self.path, body, headers)
                found = connection.getresponse()
                content, status = found.read(), found.status
            if status == 200:
                try:
                    status, content = trouble(self.command, content)
                except TimeoutError:
                    closing.wait()
                    self.close_connection = True
                    return
            self.send_response(status)
            for name in ("ETag", "Last-Modified", "Content-Type"):
                if found.headers[name]:
                    self.send_header(name, found.headers[name])
            size = found.headers["Content-Length"] if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", size or "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{address.partition('endpoint=')[0]}endpoint=http://127.0.0.1:{server.server_port}"
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # Until whoever started it is gone.
    sys.stdin.read()


if __name__ == "__main__":
    main()
