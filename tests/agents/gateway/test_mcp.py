"""Real MCP clients and servers with the gateway in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from tests.agents.gateway.mcp_server import mcp_server
from tests.agents.gateway.wire import ECHO, PATH, Stand, read_message, stand
from tests.waiting import eventually_async

MODES = ["auto", "legacy"]


def text_of(result: CallToolResult) -> str:
    assert not result.is_error
    return "".join(getattr(each, "text", "") for each in result.content)


def client(here: Stand, mode: str = "auto") -> Client:
    return Client(here.gateway.url + PATH, mode=mode)


@contextlib.asynccontextmanager
async def light_client(here: Stand, mode: str) -> AsyncIterator[Client]:
    """A client that does not read the certificates of the world, which takes longer than all its calls."""
    async with httpx2.AsyncClient(verify=False, trust_env=False) as http:
        transport = streamable_http_client(here.gateway.url + PATH, http_client=http)
        async with Client(transport, mode=mode) as caller:
            yield caller


@pytest.mark.parametrize("mode", MODES)
def test_a_client_lists_calls_and_hears_of_progress(mode: str) -> None:
    async def run() -> None:
        heard: list[float] = []

        async def hear(progress: float, *_rest: Any) -> None:
            heard.append(progress)

        async with mcp_server("v1") as port, stand() as here:
            here.book.ports[ECHO] = port
            async with client(here, mode) as caller:
                assert {tool.name for tool in (await caller.list_tools()).tools} == {
                    "who",
                    "count_up",
                    "wait",
                }
                assert text_of(await caller.call_tool("who", {"text": "é" * 40_000})) == "v1:" + "é" * 40_000
                assert (
                    text_of(await caller.call_tool("count_up", {"to": 3}, progress_callback=hear)) == "done"
                )
                assert heard == [0, 1, 2]
                assert len(here.book.sessions) == (1 if mode == "legacy" else 0)
            await here.empty()
            # The client ends its session when it leaves.
            assert here.book.sessions == {}
            assert len(here.book.over) == (1 if mode == "legacy" else 0)

    asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_the_reason_of_a_refusal_reaches_the_client(mode: str) -> None:
    async def run() -> None:
        async with stand() as here:
            here.book.ports.clear()
            with pytest.raises((MCPError, ExceptionGroup)) as raised:
                async with client(here, mode):
                    pass
            assert "agent echo does not exist" in _told(raised.value)

    asyncio.run(run())


def test_a_session_that_is_over_and_cannot_be_begun_again_is_told_so() -> None:
    async def run() -> None:
        async with mcp_server("v1") as port, stand() as here:
            here.book.ports[ECHO] = port
            async with client(here, "legacy") as caller:
                [session] = here.book.sessions
                here.book.over.add(session)
                here.book.ports.clear()
                with pytest.raises(MCPError, match="agent echo does not exist"):
                    await caller.call_tool("who", {})

    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "session"), [("200 OK", "a" * 257), ("200 OK", "a b"), ("400 Bad Request", "fine")]
)
def test_a_session_is_noted_only_if_it_may_be_one_and_was_opened(status: str, session: str) -> None:
    async def run() -> None:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            head = f"HTTP/1.1 {status}\r\nmcp-session-id: {session}\r\ncontent-length: 0\r\n\r\n"
            writer.write(head.encode())

        async with stand(handler) as here:
            assert (await here.ask(here.request(b"x"))).status == int(status.split()[0])
            assert here.book.sessions == {}

    asyncio.run(run())


def test_a_call_that_is_given_up_ends_at_the_server() -> None:
    async def run() -> None:
        async with mcp_server("v1") as port, stand() as here:
            here.book.ports[ECHO] = port
            async with client(here) as caller:
                calling = asyncio.create_task(caller.call_tool("wait", {}))
                await eventually_async(lambda: here.book.inside[port] == 1)
                calling.cancel()
                await asyncio.wait([calling])
                await here.empty()
                assert text_of(await caller.call_tool("who", {"text": "on"})) == "v1:on"

    asyncio.run(run())


@pytest.mark.soak
def test_swaps_fail_no_call_and_every_client_comes_to_the_new_version() -> None:
    async def run() -> None:
        answered: defaultdict[int, list[str]] = defaultdict(list)
        over = asyncio.Event()

        async def call(number: int, here: Stand) -> None:
            async with light_client(here, MODES[number % 2]) as caller:
                while not over.is_set():
                    said = text_of(await caller.call_tool("who", {}))
                    answered[number].append(said)

        def total() -> int:
            return sum(map(len, answered.values()))

        async with mcp_server("v1") as one, mcp_server("v2") as two, stand() as here:
            here.book.ports[ECHO] = one
            async with asyncio.TaskGroup() as group:
                for number in range(16):
                    group.create_task(call(number, here))
                await eventually_async(lambda: len(answered) == 16)
                for port in (two, one, two):
                    before = total()
                    here.book.ports[ECHO] = port
                    here.gateway.follow("echo")
                    await eventually_async(lambda before=before: total() >= before + 24)
                async with client(here, "legacy") as late:
                    assert text_of(await late.call_tool("who", {})) == "v2:"
                over.set()
            await here.empty()
        for said in answered.values():
            assert (said[0], said[-1], set(said)) == ("v1:", "v2:", {"v1:", "v2:"})

    asyncio.run(run())


def _told(error: BaseException) -> str:
    """All that an error and those it holds say."""
    held = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return " ".join([str(error), *map(_told, held)])
