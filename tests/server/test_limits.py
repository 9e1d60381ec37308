"""What one caller may hold at a time, so that the others, and the operator before all, are answered."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from ratchet.config import Loaded
from ratchet.runtime import Runtime
from ratchet.runtime.resources import resident_bytes
from ratchet.server.app import MAX_BODY_BYTES
from ratchet.server.routes.health import shared
from ratchet.server.service import NOBODY, Access, Service
from ratchet.server.serving import MOST_CHUNKS, MOST_PIPELINED
from tests.server.conftest import Server
from tests.server.protocol_things import new_project, ok
from tests.waiting import PATIENCE_SECONDS, eventually, eventually_async

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
TOKEN_OF_PROJECT = "token-of-the-project-0123456789"
# The server takes half as many connections: 128.
DESCRIPTORS = 256
MEGABYTE = 1024 * 1024
Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    address = (httpx.URL(server.url).host, httpx.URL(server.url).port or 0)
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection(address, timeout=60))


def streaming(connect: Connect, token: str, query: str = "") -> int:
    """Ask for a stream that stays open; the status it begins with, 0 for a connection that is closed."""
    caller = connect()
    asked = f"GET /events/stream{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    caller.sendall(asked.encode())
    with contextlib.suppress(ConnectionError):
        return int([*caller.recv(4096).split(b" ", 2), b"0", b"0"][1])
    return 0


def test_the_streams_of_one_project_leave_room_for_all_others(server: Server, connect: Connect) -> None:
    project = new_project(server.client, "mine")
    ok(server.client.put(f"/projects/{project}/secrets", json={"api_token": TOKEN_OF_PROJECT}))
    resource.prlimit(server.pid("server"), resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    query = f"?project_id={project}"
    found = [streaming(connect, TOKEN_OF_PROJECT, query) for _ in range(DESCRIPTORS // 2)]
    assert set(found) == {200, 429}
    # All of them are still open.
    theirs = {"Authorization": f"Bearer {TOKEN_OF_PROJECT}"}
    refused = httpx.get(f"{server.url}/events/stream{query}", headers=theirs, timeout=60)
    assert refused.status_code == 429
    assert "streams" in refused.json()["detail"]
    assert refused.json()["hint"]
    assert refused.headers["Retry-After"]
    assert httpx.get(f"{server.url}/projects/{project}", headers=theirs, timeout=60).status_code == 200
    assert httpx.get(f"{server.url}/projects", headers=server.client.headers, timeout=60).status_code == 200
    assert streaming(connect, server.token) == 200


def test_streams_of_the_operator_leave_room_for_requests(server: Server, connect: Connect) -> None:
    resource.prlimit(server.pid("server"), resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    found = [streaming(connect, server.token) for _ in range(DESCRIPTORS // 2)]
    assert set(found) == {200, 429}
    headers = server.client.headers
    assert httpx.get(f"{server.url}/projects", headers=headers, timeout=60).status_code == 200


def test_a_stream_that_has_ended_makes_room(server: Server) -> None:
    resource.prlimit(server.pid("server"), resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    address = (httpx.URL(server.url).host, httpx.URL(server.url).port or 0)
    with contextlib.ExitStack() as opened:
        found = [
            streaming(lambda: opened.enter_context(socket.create_connection(address)), server.token)
            for _ in range(DESCRIPTORS // 2)
        ]
    assert 429 in found

    def opens() -> bool:
        with server.client.stream("GET", "/events/stream") as answer:
            return answer.status_code == 200

    eventually(opens)


def begun(connect: Connect, path: str, length: int, headers: str = "") -> socket.socket:
    """A request whose body is not sent yet."""
    caller = connect()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n{headers}\r\n"
    caller.sendall(head.encode())
    return caller


SIGNED = "X-Hub-Signature-256: sha256=0\r\nX-GitHub-Event: push\r\n"


def test_the_bodies_of_strangers_have_a_total(server: Server, connect: Connect) -> None:
    pid = server.pid("server")
    before = resident_bytes(pid) or 0
    part = b"x" * (MAX_BODY_BYTES - 1)
    strangers = []
    for _ in range(20):
        stranger = begun(connect, "/webhooks/github", MAX_BODY_BYTES, SIGNED)
        with contextlib.suppress(OSError):  # it may be refused before the end
            stranger.sendall(part)
        strangers.append(stranger)
    answers = []
    for stranger in strangers[:10]:
        with contextlib.suppress(OSError):
            answers.append(stranger.recv(4096))
    assert any(each.startswith(b"HTTP/1.1 503") and b"retry-after" in each.lower() for each in answers)
    assert (resident_bytes(pid) or 0) - before < 100 * MEGABYTE
    # A small one is taken, however much others hold, and so is a large one of the operator.
    small = httpx.post(
        f"{server.url}/webhooks/github",
        content=b"{}",
        headers={"X-Hub-Signature-256": "sha256=0"},
        timeout=60,
    )
    assert small.status_code == 401
    large = json.dumps({"name": "x" * (MAX_BODY_BYTES - 100)})
    assert server.client.post("/projects", content=large).status_code == 422


def test_who_proves_nothing_is_refused_before_the_body_is_read(server: Server, connect: Connect) -> None:
    for path, headers in (
        ("/projects", ""),
        ("/projects", "Authorization: Bearer wrong\r\n"),
        ("/webhooks/github", ""),
        ("/webhooks/gitlab", ""),
        ("/webhooks/triggers/none", ""),
        ("/console/projects", ""),
    ):
        caller = begun(connect, path, 1000, headers)
        assert caller.recv(4096).startswith(b"HTTP/1.1 401"), (path, headers)


def test_who_leaves_in_the_middle_of_a_body_fills_no_log(server: Server, connect: Connect) -> None:
    for _ in range(3):
        begun(connect, "/webhooks/github", 1000, SIGNED).close()
    # Asked for afterwards on a connection that came later.
    assert httpx.get(f"{server.url}/health/live", timeout=60).status_code == 200
    assert "Traceback" not in server.words


def test_a_delivery_of_more_values_than_a_forge_sends_is_not_read(server: Server) -> None:
    body = b"[" + b"[]," * (MAX_BODY_BYTES // 3 - 10) + b"[]]"
    before = resident_bytes(server.pid("server")) or 0
    proof = {"X-Hub-Signature-256": "sha256=" + hmac.new(b"s", body, hashlib.sha256).hexdigest()}
    answer = httpx.post(f"{server.url}/webhooks/github", content=body, headers=proof, timeout=60)
    assert answer.status_code == 413
    assert (resident_bytes(server.pid("server")) or 0) - before < 100 * MEGABYTE


def test_the_description_is_made_once_and_known_again(server: Server) -> None:
    first = server.client.get("/openapi.json")
    assert first.headers["content-type"] == "application/json"
    etag = first.headers["ETag"]
    again = server.client.get("/openapi.json", headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert server.client.get("/openapi.json", headers={"If-None-Match": '"other"'}).content == first.content
    assert server.client.head("/openapi.json").status_code == 200


def test_one_connection_has_only_so_many_requests_that_wait(server: Server, connect: Connect) -> None:
    one = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    caller = connect()
    caller.sendall(one * (MOST_PIPELINED + 1))
    caller.shutdown(socket.SHUT_WR)
    greedy = connect()
    with contextlib.suppress(ConnectionError):
        greedy.sendall(one * 5000)
        answer = b""
        while part := greedy.recv(65_536):
            answer += part[-20:]
        assert answer.count(b"HTTP/1.1 200") < MOST_PIPELINED
    assert httpx.get(f"{server.url}/health/live", timeout=60).status_code == 200


ANSWERS_400 = {
    "two lengths": b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
    "a length and chunks": b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks by another name": b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, x\r\n\r\n",
    "a folded header": b"GET /health/live HTTP/1.1\r\nHost: x\r\n Folded: y\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n",
    "no request": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


def test_what_two_servers_could_read_in_two_ways_is_refused(server: Server, connect: Connect) -> None:
    """And a request that one puts behind it is not answered."""
    for what, sent in ANSWERS_400.items():
        caller = connect()
        caller.sendall(sent + b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := caller.recv(65_536):
                answer += part
        assert not answer or answer.startswith(b"HTTP/1.1 4"), what
        assert b"HTTP/1.1 200" not in answer, what


def test_old_and_odd_requests_are_answered(server: Server, connect: Connect) -> None:
    for sent in (
        b"GET /health/live HTTP/1.0\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n",
        b"GET /health/live?" + b"a=b&" * 10_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ):
        caller = connect()
        caller.sendall(sent)
        assert caller.recv(65_536).startswith(b"HTTP/1.1 200"), sent[:60]


def test_a_long_path_makes_no_long_line_of_the_log(server: Server) -> None:
    path = "/" + "x" * 30_000
    assert httpx.get(f"{server.url}{path}", timeout=60).status_code == 401
    assert "x" * 200 in server.words
    assert "x" * 400 not in server.words


def test_a_body_in_more_parts_than_anybody_sends_is_cut_off(server: Server, connect: Connect) -> None:
    caller = connect()
    caller.sendall(
        b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=0\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    answer = b""
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            caller.sendall(b"1\r\nx\r\n" * (MOST_CHUNKS // 50))
        caller.sendall(b"0\r\n\r\n")
        answer = caller.recv(4096)
    assert answer == b""
    assert httpx.get(f"{server.url}/health/live", timeout=60).status_code == 200


def test_what_anyone_may_ask_is_looked_up_once_for_all_who_wait(runtime: Runtime, loaded: Loaded) -> None:
    access = Access(Service(runtime, loaded), "request-1", NOBODY)
    asked: list[Access] = []
    answer = threading.Event()

    def ask(of: Access) -> int:
        asked.append(of)
        assert answer.wait(PATIENCE_SECONDS)
        return len(asked)

    async def many() -> list[int]:
        waiting = [asyncio.create_task(shared(access, ask)) for _ in range(50)]
        await eventually_async(lambda: asked)
        waiting[0].cancel()
        answer.set()
        return await asyncio.gather(*waiting[1:])

    assert asyncio.run(many()) == [1] * 49
    assert asyncio.run(shared(access, ask)) == 2
