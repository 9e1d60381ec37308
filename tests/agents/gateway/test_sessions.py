"""Sessions of clients that go on when the address moves to another version."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.agents.gateway.mcp_server import mcp_server
from tests.agents.gateway.test_mcp import text_of
from tests.agents.gateway.wire import ECHO, PATH, Stand, read_message, stand
from tests.waiting import eventually_async


@contextlib.asynccontextmanager
async def session(here: Stand, heard: list[str] | None = None, **more: Any) -> AsyncIterator[Client]:
    """A client of the older protocol; what its server tells it goes into `heard`."""

    async def hear(message: Any) -> None:
        if heard is not None:
            heard.append(str(getattr(message, "method", message)))

    transport = streamable_http_client(here.gateway.url + PATH)
    async with Client(transport, mode="legacy", message_handler=hear, **more) as client:
        yield client


def move(here: Stand, port: int) -> None:
    here.book.ports[ECHO] = port
    here.gateway.follow("echo")


async def who(client: Client) -> str:
    return text_of(await client.call_tool("who", {}))


def test_a_client_comes_to_the_new_version_and_hears_which_lists_changed() -> None:
    async def run() -> None:
        heard: list[str] = []
        async with mcp_server("v1") as one, mcp_server("v2") as two, stand() as here:
            here.book.ports[ECHO] = one
            async with session(here, heard) as client:
                assert await who(client) == "v1:"
                # The client has its stream of news.
                await eventually_async(lambda: here.book.inside[one] == 1)
                for port, version in ((two, "v2:"), (one, "v1:"), (two, "v2:")):
                    heard.clear()
                    move(here, port)
                    await eventually_async(lambda: heard == ["notifications/tools/list_changed"])
                    assert await who(client) == version
                # Each server is left by the session that it had.
                assert list(here.book.sessions.values()) == [two]
            await here.empty()
            assert here.book.sessions == {}

    asyncio.run(run())


def test_a_call_under_way_ends_where_it_began_and_can_be_given_up_there() -> None:
    async def run() -> None:
        async with mcp_server("v1") as one, mcp_server("v2") as two, stand() as here:
            here.book.ports[ECHO] = one
            async with session(here) as client:
                waiting = asyncio.create_task(client.call_tool("wait", {}))
                await eventually_async(lambda: here.book.inside[one] == 2)
                move(here, two)
                assert await who(client) == "v2:"
                assert not waiting.done()
                # Its session is not closed while it has this call.
                assert sorted(here.book.sessions.values()) == sorted([one, two])
                waiting.cancel()
                await eventually_async(lambda: list(here.book.sessions.values()) == [two])
                await eventually_async(lambda: here.book.inside[one] == 0)
                assert await who(client) == "v2:"

    asyncio.run(run())


def test_a_session_outlives_the_end_of_its_server() -> None:
    async def run() -> None:
        async with mcp_server("v1") as one, stand() as here:
            async with mcp_server("v0") as zero:
                here.book.ports[ECHO] = zero
                client = await contextlib.AsyncExitStack().__aenter__()
                caller = await client.enter_async_context(session(here))
                assert await who(caller) == "v0:"
                here.book.ports[ECHO] = one
                here.book.over |= set(here.book.sessions)
            assert await who(caller) == "v1:"
            await client.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("trouble", ["refuses", "no session", "another protocol", "hangs up"])
def test_a_client_that_cannot_follow_keeps_the_old_version_without_an_error(trouble: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_message(reader)
        if trouble == "hangs up":
            return
        spoken = "1999-01-01" if trouble == "another protocol" else "2025-06-18"
        body = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": spoken}})
        status = "400 Bad Request" if trouble == "refuses" else "200 OK"
        named = "" if trouble == "no session" else "mcp-session-id: fine\r\n"
        writer.write(f"HTTP/1.1 {status}\r\n{named}content-length: {len(body)}\r\n\r\n{body}".encode())

    async def run() -> None:
        async with mcp_server("v1") as one, stand(answer) as here:
            other = here.book.ports[ECHO]
            here.book.ports[ECHO] = one
            heard: list[str] = []
            async with session(here, heard) as client:
                assert await who(client) == "v1:"
                move(here, other)
                for _ in range(3):
                    assert await who(client) == "v1:"
                assert list(here.book.sessions.values()) == [one]
                # A later version may be one that it can follow to.
                async with mcp_server("v3") as three:
                    move(here, three)
                    assert await who(client) == "v3:"

    asyncio.run(run())


def test_a_session_that_is_named_by_another_agents_client_is_not_shared() -> None:
    async def run() -> None:
        async with mcp_server("v1") as one, stand() as here:
            here.book.ports[ECHO] = one
            async with session(here) as client:
                await who(client)
                [known] = here.book.sessions
                elsewhere = here.request(
                    b"{}",
                    path="/agents/other/runner/mcp",
                    mcp_session_id=known,
                    content_type="application/json",
                )
                here.book.sessions.clear()
                assert (await here.ask(elsewhere)).status == 404

    asyncio.run(run())
