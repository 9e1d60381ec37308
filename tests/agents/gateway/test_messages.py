"""Forms that requests and answers may have, and how they come out on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ratchet.agents.call_record import CallRecorder, NotedCall
from ratchet.agents.gateway import GatewayLimits
from tests.agents.gateway.wire import OK, Handler, read_chunk, read_head, read_message, stand

CHUNKED = {"content_length": None, "transfer_encoding": "chunked"}


def saying(answer: bytes, *, hang_up: bool = False) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            await read_message(reader)
            writer.write(answer)
            if hang_up:
                return

    return handler


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_each_method_goes_through_and_connections_are_kept(method: str) -> None:
    async def run() -> None:
        async with stand() as here, here.caller() as caller:
            for _ in range(3):
                answered = await caller.ask(here.request(method=method))
                assert (answered.status, answered.body) == (200, b"ok")
                assert "connection" not in answered.headers
            assert [each.line for each in here.received] == [f"{method} /mcp HTTP/1.1"] * 3

    asyncio.run(run())


def test_the_answer_to_head_has_no_body() -> None:
    async def run() -> None:
        async with (
            stand(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n")) as here,
            here.caller() as caller,
        ):
            for _ in range(2):
                answered = await caller.ask(here.request(method="HEAD"), bodiless=True)
                assert (answered.status, answered.headers["content-length"]) == (200, "12")
            missing = await caller.ask(
                here.request(method="HEAD", path="/agents/no/runner/mcp"), bodiless=True
            )
            assert missing.status == 404
            await here.empty()

    asyncio.run(run())


def test_chunks_become_a_length_when_the_body_is_whole() -> None:
    async def run() -> None:
        async with stand() as here:
            assert (await here.ask(here.request(b"5\r\nhello\r\n0\r\n\r\n", **CHUNKED))).status == 200
            [received] = here.received
            assert (received.body, received.headers["content-length"]) == (b"hello", "5")
            assert "transfer-encoding" not in received.headers

    asyncio.run(run())


@pytest.mark.parametrize("chunked", [True, False])
def test_a_long_body_is_passed_on_while_it_comes(chunked: bool) -> None:
    async def run() -> None:
        begun, bodies = asyncio.Event(), []

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _, headers = await read_head(reader)
            begun.set()
            if chunked:
                assert headers["transfer-encoding"] == "chunked"
                bodies.append(b"".join([piece async for piece in chunks(reader)]))
            else:
                bodies.append(await reader.readexactly(int(headers["content-length"])))
            writer.write(OK)

        async with stand(handler, limits=GatewayLimits(held_bytes=1000)) as here, here.caller() as caller:
            half = b"4b0\r\n" + b"a" * 1200 + b"\r\n" if chunked else b"a" * 1200
            await caller.send(here.request(half, **(CHUNKED if chunked else {"content_length": "2400"})))
            await begun.wait()
            assert (await caller.ask(half + b"0\r\n\r\n" if chunked else half)).status == 200
            assert bodies == [b"a" * 2400]
            await here.empty()

    asyncio.run(run())


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await read_chunk(reader):
        yield piece


def test_a_caller_that_asks_first_is_told_to_go_on() -> None:
    async def run() -> None:
        async with stand() as here, here.caller() as caller:
            for _ in range(2):
                assert (
                    await caller.ask(here.request(b"", content_length="5", expect="100-continue"))
                ).status == 100
                assert (await caller.ask(b"hello")).status == 200
            assert "expect" not in here.received[0].headers
            refused = await caller.ask(here.request(b"", content_length="99999999", expect="100-continue"))
            assert refused.status == 413

    asyncio.run(run())


def test_a_caller_that_asks_first_behind_another_request_is_told_in_its_turn() -> None:
    async def run() -> None:
        async with stand() as here, here.caller() as caller:
            caller.writer.write(
                here.request(b"one") + here.request(b"", content_length="3", expect="100-continue")
            )
            assert [(await caller.answer()).status for _ in range(2)] == [200, 100]
            assert (await caller.ask(b"two")).status == 200
            assert [each.body for each in here.received] == [b"one", b"two"]

    asyncio.run(run())


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_caller_that_wants_the_connection_closed_gets_it_closed(version: str) -> None:
    async def run() -> None:
        async with (
            stand(
                saying(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            ) as here,
            here.caller() as caller,
        ):
            asked = here.request(b"x", connection="close").replace(b"HTTP/1.1", f"HTTP/{version}".encode())
            answered = await caller.ask(asked)
            assert (answered.body, answered.headers["connection"]) == (b"ok", "close")
            # An older caller does not know chunks: the end of the connection is the end of the answer.
            assert ("transfer-encoding" in answered.headers) == (version == "1.1")
            assert await caller.rest() == b""

    asyncio.run(run())


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\nX: y\r\n\r\n",
            200,
            b"ok",
        ),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 7\r\n\r\n", 204, b""),
        (b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", 202, b""),
        (b"HTTP/1.1 299 Whatever\r\ncontent-length: 0\r\n\r\n", 299, b""),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone", 404, b"gone"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nx: y\r\n\r\n" + OK, 200, b"ok"),
    ],
)
def test_an_answer_keeps_its_meaning(said: bytes, status: int, body: bytes) -> None:
    async def run() -> None:
        async with stand(saying(said)) as here, here.caller() as caller:
            for _ in range(2):
                answered = await caller.ask(here.request(b"x"))
                assert (answered.status, answered.body) == (status, body)
            await here.empty()

    asyncio.run(run())


def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    async def run() -> None:
        said = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nall of it"
        async with stand(saying(said, hang_up=True)) as here, here.caller() as caller:
            for _ in range(2):
                answered = await caller.ask(here.request(b"x"))
                assert (answered.status, answered.body) == (200, b"all of it")

    asyncio.run(run())


def test_a_caller_sees_nothing_that_is_not_meant_for_it() -> None:
    async def run() -> None:
        said = (
            b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\n"
            b"Set-Cookie: a=b\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nTrailer: X\r\nServer: mine\r\n"
            b"Content-Length: 0\r\n\r\n"
        )
        async with stand(saying(said)) as here:
            assert (await here.ask(here.request(b"x"))).headers == {"server": "mine", "content-length": "0"}

    asyncio.run(run())


class NotingRecorder(CallRecorder):
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.noted: list[NotedCall] = []

    def wants_next(self) -> bool:
        return True

    def note(self, call: NotedCall) -> None:
        self.noted.append(call)


def test_a_request_that_its_server_refuses_is_no_call() -> None:
    """What has no session, or is none, says nothing of the agent: noted, it could start changes by itself."""
    statuses = ["400 Bad Request", "406 Not Acceptable", "500 Internal Server Error", "200 OK"]

    async def run() -> None:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for status in statuses:
                await read_message(reader)
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok".encode())

        recorder = NotingRecorder()
        async with stand(handler, recorder=recorder) as here, here.caller() as caller:
            for status in statuses:
                assert (await caller.ask(here.request(status.encode()))).status == int(status[:3])
            await here.empty()
        assert [each.body.decode() for each in recorder.noted] == statuses[2:]

    asyncio.run(run())
