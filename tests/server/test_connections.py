"""Strangers who connect and send nothing, or never end, keep no caller waiting and end no work."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.runtime import JobStatus, open_runtime
from ratchet.server.serving import MOST_HEADER_BYTES
from tests.runtime.conftest import ended
from tests.runtime.kinds import make_kinds
from tests.server.conftest import Server

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
DESCRIPTORS, STRANGERS = 1024, 1100
HALF = {
    "nothing": b"",
    "half a header": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "half a body": b"POST /webhooks/github HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
}
Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    address = (httpx.URL(server.url).host, httpx.URL(server.url).port or 0)
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection(address, timeout=60))


@pytest.mark.parametrize(
    "sent", [each if each == "half a body" else pytest.param(each, marks=pytest.mark.soak) for each in HALF]
)
def test_more_half_open_connections_than_descriptors_starve_neither_callers_nor_work(
    server: Server, connect: Connect, loaded: Loaded, ledger: Ledger, tmp_path: Path, sent: str
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * STRANGERS)), hard))
    resource.prlimit(server.pid("server"), resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    for _ in range(STRANGERS):
        stranger = connect()
        with contextlib.suppress(OSError):  # it had to make room already
            stranger.sendall(HALF[sent])
    assert httpx.get(f"{server.url}/health", timeout=30).json()["status"] == "ok"
    runtime = open_runtime(loaded, ledger, make_kinds())
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "spell", {"file": str(tmp_path / "marks"), "seconds": 0})
    assert ended(ledger, job_id).status is JobStatus.FINISHED
    assert "Too many open files" not in server.words


_CHUNKED = b"POST /webhooks/github HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ", b"x"),
        (_CHUNKED + b"0\r\nX-Long: ", b"x"),
        (_CHUNKED + b"0\r\n", b"A: b\r\n"),
    ],
    ids=["a header", "a trailer", "trailers"],
)
def test_headers_without_an_end_are_cut_off(
    server: Server, connect: Connect, begun: bytes, more: bytes
) -> None:
    stranger = connect()
    stranger.sendall(begun)
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 100 * MOST_HEADER_BYTES:
            sent += stranger.send(more * (MOST_HEADER_BYTES // len(more)))
    assert sent < 100 * MOST_HEADER_BYTES
    assert httpx.get(f"{server.url}/health", headers={"X-Long": "x" * 30_000}).status_code == 200


def test_a_body_in_many_chunks_is_taken_whole(server: Server) -> None:
    """Its chunks have more around them, all together, than headers may have."""

    def chunks() -> Iterator[bytes]:
        for _ in range(20_000):
            yield b"x"

    # It is read to its end, and then it is not signed by one who knows the secret.
    headers = {"X-Hub-Signature-256": "sha256=0"}
    answer = httpx.post(f"{server.url}/webhooks/triggers/none", content=chunks(), headers=headers)
    assert answer.status_code == 401


def test_requests_that_follow_each_other_on_one_connection_are_all_answered(
    server: Server, connect: Connect
) -> None:
    """Each has headers within the bound, and all of them together do not."""
    caller = connect()
    one = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * 30_000 + b"\r\n\r\n"
    caller.sendall(one * 9 + one.replace(b"Host", b"Connection: close\r\nHost"))
    answer = b""
    while part := caller.recv(65_536):
        answer += part
    assert answer.count(b"HTTP/1.1 200") == 10


@pytest.mark.soak
@pytest.mark.parametrize("sent", ["nothing", "half a header"])
def test_who_does_not_say_what_it_wants_is_hung_up_on(server: Server, connect: Connect, sent: str) -> None:
    stranger = connect()
    stranger.sendall(HALF[sent])
    with contextlib.suppress(ConnectionResetError):
        assert stranger.recv(1) == b""
    assert httpx.get(f"{server.url}/health").status_code == 200
