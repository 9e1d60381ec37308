"""Who is let in, and what of a request goes through."""

from __future__ import annotations

import asyncio
import json

import pytest

from ratchet.agents.gateway import Gateway
from ratchet.agents.gateway.caller import admit, door_at
from ratchet.agents.gateway.request import RequestHead, read_head
from ratchet.agents.gateway.routes import ARCHITECT, Refusal
from ratchet.kernel import Conflict, Misuse
from tests.agents.gateway.book import Book
from tests.agents.gateway.wire import ECHO, PATH, stand

TOKEN = "a long random text"


def head(path: str = PATH, **headers: str) -> RequestHead:
    given = [(name.encode(), value.encode()) for name, value in {"host": "127.0.0.1:8125", **headers}.items()]
    return read_head(b"POST", path.encode(), "1.1", given, persistent=True)


@pytest.mark.parametrize("host", ["127.0.0.1:8125", "localhost:8125", "LOCALHOST:8125", "[::1]:8125"])
def test_this_machine_is_called_by_its_own_names(host: str) -> None:
    assert admit(head(host=host), door_at("127.0.0.1", 8125, guarded=False, names=()), None) == ECHO


@pytest.mark.parametrize(
    "host",
    ["", "127.0.0.1", "localhost", "127.0.0.1:8126", "evil.example:8125", "127.0.0.1:8125.evil.example"],
)
def test_a_name_that_somebody_else_resolves_to_this_machine_is_refused(host: str) -> None:
    with pytest.raises(Refusal) as refused:
        admit(head(host=host), door_at("127.0.0.1", 8125, guarded=False, names=()), None)
    assert refused.value.status == 403


def test_port_80_needs_no_mention() -> None:
    assert admit(head(host="localhost"), door_at("127.0.0.1", 80, guarded=False, names=()), None) == ECHO


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("agents.example", True),
        ("agents.example:8125", True),
        ("agents.example:1", False),
        ("other.example:9000", True),
        ("other.example:8125", False),
        ("192.0.2.7:8125", True),
        ("192.0.2.8:8125", False),
    ],
)
def test_names_that_were_configured_and_the_address_itself_count(host: str, passes: bool) -> None:
    door = door_at("192.0.2.7", 8125, guarded=False, names=("agents.example", "other.example:9000"))
    if passes:
        assert admit(head(host=host), door, None) == ECHO
    else:
        with pytest.raises(Refusal):
            admit(head(host=host), door, None)


@pytest.mark.parametrize(
    ("origin", "passes"),
    [
        ("http://127.0.0.1:8125", True),
        ("http://localhost:8125", True),
        ("null", False),
        ("http://evil.example", False),
        ("http://127.0.0.1:8126", False),
        ("file://127.0.0.1:8125", False),
        ("127.0.0.1:8125", False),
    ],
)
def test_only_pages_of_the_same_host_may_call(origin: str, passes: bool) -> None:
    door = door_at("127.0.0.1", 8125, guarded=False, names=())
    if passes:
        assert admit(head(origin=origin), door, None) == ECHO
    else:
        with pytest.raises(Refusal) as refused:
            admit(head(origin=origin), door, None)
        assert refused.value.status == 403


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN])
def test_strangers_need_the_token(given: str | None) -> None:
    door = door_at("127.0.0.1", 8125, guarded=True, names=())
    with pytest.raises(Refusal) as refused:
        admit(head(**({} if given is None else {"authorization": given})), door, TOKEN.encode())
    assert refused.value.status == 401


def test_a_stranger_with_the_token_comes_in_and_the_architect_looks_for_itself() -> None:
    door = door_at("127.0.0.1", 8125, guarded=True, names=())
    assert admit(head(authorization=f"bearer {TOKEN}"), door, TOKEN.encode()) == ECHO
    assert admit(head("/architect/mcp"), door, TOKEN.encode()) is ARCHITECT


def test_it_does_not_listen_to_other_machines_without_a_token() -> None:
    async def run() -> None:
        gateway = Gateway(Book(), architect_port=lambda: None)
        with pytest.raises(Misuse, match=r"other machines can reach 0\.0\.0\.0") as raised:
            await gateway.listen("0.0.0.0", 0)
        assert "server.token" in (raised.value.hint or "")
        await gateway.close(0)

    asyncio.run(run())


def test_where_other_machines_come_in_the_token_is_wanted_and_on_loopback_it_is_not() -> None:
    async def run() -> None:
        async with stand(token=TOKEN) as here:
            outside = await here.gateway.listen("0.0.0.0", 0)
            inside = here.request(b"x")
            assert (await here.ask(inside)).status == 200
            port = int(outside.rpartition(":")[2])
            statuses = []
            for authorization in (None, f"Bearer {TOKEN}"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(here.request(b"x", host=f"127.0.0.1:{port}", authorization=authorization))
                statuses.append((await reader.readline()).split()[1])
                writer.close()
                await writer.wait_closed()
            assert statuses == [b"401", b"200"]
            assert all("authorization" not in each.headers for each in here.received)

    asyncio.run(run())


def test_a_port_that_is_taken_is_said_to_be() -> None:
    async def run() -> None:
        async with stand() as here:
            with pytest.raises(Conflict, match="is taken"):
                await here.gateway.listen("127.0.0.1", here.port)
            with pytest.raises(Misuse, match="cannot be served"):
                await here.gateway.listen("no such host.invalid", 0)

    asyncio.run(run())


def test_a_server_sees_nothing_that_is_not_meant_for_it() -> None:
    async def run() -> None:
        async with stand() as here:
            asked = here.request(
                b"hello",
                authorization="Bearer secret",
                cookie="a=b",
                connection="keep-alive, x-private",
                x_private="1",
                keep_alive="timeout=5",
                te="trailers",
                proxy_authorization="Basic x",
                x_forwarded_for="1.2.3.4",
                x_forwarded_anything="1",
                forwarded="for=1.2.3.4",
                origin=f"http://localhost:{here.port}",
                mcp_protocol_version="2026-07-28",
                accept="text/event-stream",
            )
            assert (await here.ask(asked)).status == 200
            [received] = here.received
            assert received.line == "POST /mcp HTTP/1.1"
            assert received.body == b"hello"
            assert received.headers == {
                "host": f"127.0.0.1:{here.book.ports[ECHO]}",
                "content-length": "5",
                "mcp-protocol-version": "2026-07-28",
                "accept": "text/event-stream",
            }

    asyncio.run(run())


def test_the_architect_gets_the_token_and_keeps_its_path() -> None:
    async def run() -> None:
        async with stand(architect_port=lambda: here.book.ports[ECHO]) as here:
            asked = here.request(b"hello", path="/architect/mcp", authorization="Bearer secret")
            assert (await here.ask(asked)).status == 200
            [received] = here.received
            assert received.line == "POST /architect/mcp HTTP/1.1"
            assert received.headers["authorization"] == "Bearer secret"
            assert here.book.entries == []

    asyncio.run(run())


def test_refusals_are_errors_that_an_mcp_client_can_show() -> None:
    async def run() -> None:
        async with stand() as here:
            for asked, status, message in (
                (here.request(path="/agents/nobody/runner/mcp"), 404, "agent nobody does not exist"),
                (here.request(path="/elsewhere"), 404, "'/elsewhere' is no address"),
                (here.request(path="/architect/mcp"), 503, "the Architect is not up"),
                (here.request(method="OPTIONS"), 405, "'OPTIONS' is not served here"),
                (here.request(host="evil.example"), 403, "'evil.example' is not served here"),
            ):
                answered = await here.ask(asked)
                said = json.loads(answered.body)
                assert (answered.status, said["error"]["message"]) == (status, message)
                assert (said["jsonrpc"], said["id"]) == ("2.0", None)
                assert answered.headers["content-type"] == "application/json"

    asyncio.run(run())
