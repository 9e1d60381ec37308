"""Spans reach a collector when wanted, and cost nothing when not."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ratchet.extras import install_line
from ratchet.kernel import Missing
from ratchet.observe import logs, tracing

SCRIPT = """
import sys
from ratchet.observe import tracing
tracing.configure(enabled=False)
with tracing.span("work", run_id=1):
    pass
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    tracing.shutdown()


@contextmanager
def collector(requests: list[tuple[str, bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_when_off_nothing_of_opentelemetry_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_when_off_a_span_lets_values_and_errors_through() -> None:
    tracing.configure(enabled=False)
    with pytest.raises(KeyError), tracing.span("work"):
        raise KeyError


def test_without_the_extra_the_way_to_install_it_is_told() -> None:
    script = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "sys.modules['opentelemetry.exporter'] = None\n"
        "from ratchet.kernel import Missing\nfrom ratchet.observe import tracing\n"
        "try:\n    tracing.configure(True)\nexcept Missing as error:\n    print(error.exit_code, error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{Missing.exit_code} {install_line('otel')}"


def test_spans_reach_the_collector_with_the_bound_ids_and_without_secrets() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    requests: list[tuple[str, bytes]] = []
    with collector(requests) as endpoint:
        tracing.configure(True, endpoint)
        with logs.bind(run_id="run-17", step_id=3, attempt_id=4, job_id=5):
            with tracing.span("judge", kind="tests", token="hunter2", nothing=None):
                pass
            with pytest.raises(ValueError, match="no"), tracing.span("propose"):
                raise ValueError("no")
        tracing.shutdown()
    assert {path for path, _ in requests} == {"/v1/traces"}
    sent = b"".join(body for _, body in requests)
    assert all(
        word in sent for word in (b"judge", b"propose", b"run-17", b"attempt_id", b"job_id", b"step_id")
    )
    assert b"hunter2" not in sent
