"""Servers that end, break off, talk nonsense, or are replaced."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import pytest

from ratchet.agents.gateway import GatewayLimits, Unavailable
from tests.agents.gateway.wire import ECHO, OK, SECONDS, read_head, read_message, server, stand
from tests.waiting import eventually_async


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while not reader.at_eof():
        await read_message(reader)
        writer.write(OK)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def reset(writer: asyncio.StreamWriter) -> None:
    """Hang up like a process that ends with something unread."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def test_a_connection_to_a_server_is_used_again() -> None:
    async def run() -> None:
        connections = 0

        async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await answer_ok(reader, writer)

        async with stand(count) as here:
            for _ in range(5):
                assert (await here.ask(here.request(b"x"))).status == 200
            assert connections == 1

    asyncio.run(run())


def test_connections_that_nobody_needs_are_closed() -> None:
    async def run() -> None:
        ended = 0

        async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal ended
            await read_message(reader)
            writer.write(OK)
            await reader.read()
            ended += 1

        limits = GatewayLimits(idle_backend_seconds=0.05, look_seconds=0.01)
        async with stand(count, limits=limits) as here:
            assert (await here.ask(here.request(b"x"))).status == 200
            await eventually_async(lambda: ended == 1)

    asyncio.run(run())


def test_a_kept_connection_that_the_server_has_closed_costs_no_call() -> None:
    async def run() -> None:
        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            writer.write(OK)

        async with stand(once) as here, here.caller() as caller:
            for _ in range(20):
                assert (await caller.ask(here.request(b"x"))).status == 200
            await here.empty()

    asyncio.run(run())


def test_a_request_that_a_server_has_not_read_is_brought_again() -> None:
    async def run() -> None:
        bodies: list[bytes] = []

        async def reset_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not bodies:
                bodies.append(b"unread")
                reset(writer)
                return
            bodies.append((await read_message(reader)).body)
            writer.write(OK)

        async with stand(reset_first) as here:
            assert (await here.ask(here.request(b"x"))).status == 200
            assert bodies == [b"unread", b"x"]
            assert len(here.book.entries) == 2
            await here.empty()

    asyncio.run(run())


def test_a_call_that_a_server_has_read_is_never_made_twice() -> None:
    async def run() -> None:
        calls = 0

        async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            await read_message(reader)
            calls += 1

        async with stand(die) as here, here.caller() as caller:
            answered = await caller.ask(here.request(b"x"))
            error = json.loads(answered.body)["error"]
            assert (answered.status, calls) == (502, 1)
            assert error["message"] == "the runner of agent echo did not answer: it hung up"
            assert "not known" in error["data"]["hint"]
            # The caller keeps its connection, and the next call is one of its own.
            assert (await caller.ask(here.request(b"x"))).status == 502
            assert calls == 2
            await here.empty()

    asyncio.run(run())


def test_a_server_that_has_begun_to_answer_is_not_asked_again() -> None:
    async def run() -> None:
        calls = 0

        async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            calls += 1
            await read_message(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
            await writer.drain()
            reset(writer)

        async with stand(begin) as here:
            assert (await here.ask(here.request(b"x"))).status == 502
            assert calls == 1
            await here.empty()

    asyncio.run(run())


def test_looking_again_is_harmless() -> None:
    async def run() -> None:
        looks = 0

        async def die_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal looks
            await read_message(reader)
            looks += 1
            if looks > 1:
                writer.write(OK)

        async with stand(die_once) as here:
            assert (await here.ask(here.request(method="GET"))).status == 200
            assert looks == 2

    asyncio.run(run())


def test_where_nobody_listens_the_directory_is_asked_again() -> None:
    async def run() -> None:
        async with server(answer_ok) as new, stand() as here:
            here.book.ports[ECHO] = free_port()
            asking = asyncio.create_task(here.ask(here.request(b"x")))
            await eventually_async(lambda: len(here.book.entries) == 1)
            here.book.ports[ECHO] = new
            assert (await asking).status == 200
            await here.empty()

    asyncio.run(run())


def test_a_server_that_stays_away_is_named() -> None:
    async def run() -> None:
        async with stand() as here:
            here.book.ports[ECHO] = free_port()
            answered = await here.ask(here.request(b"x"))
            assert answered.status == 502
            assert (
                "the runner of agent echo does not take calls"
                in json.loads(answered.body)["error"]["message"]
            )
            await here.empty()

    asyncio.run(run())


def test_what_keeps_a_server_from_starting_is_told() -> None:
    async def run() -> None:
        async with stand() as here:
            here.book.trouble = Unavailable("agent echo crashes at its start", hint="look at its logs")
            answered = await here.ask(here.request(b"x"))
            error = json.loads(answered.body)["error"]
            assert (answered.status, error["message"]) == (503, "agent echo crashes at its start")
            assert error["data"] == {"hint": "look at its logs"}

    asyncio.run(run())


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of it",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ],
)
def test_an_answer_that_breaks_off_does_not_look_whole(said: bytes) -> None:
    async def run() -> None:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            writer.write(said)

        async with stand(handler) as here, here.caller() as caller:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await caller.ask(here.request(b"x"))
            await here.empty()

    asyncio.run(run())


@pytest.mark.parametrize(
    "said",
    [
        b"what?\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\na",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 400_000,
        b"HTTP/1.1 200 OK\r\n" + b"x: a\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nx: a\r\n folded: b\r\n\r\n",
    ],
)
def test_an_answer_that_makes_no_sense_is_no_answer(said: bytes) -> None:
    async def run() -> None:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_head(reader)
            writer.write(said)
            await reader.read()

        async with stand(handler) as here:
            assert (await here.ask(here.request(b"x"))).status == 502
            await here.empty()

    asyncio.run(run())


def test_a_second_answer_is_not_taken_for_that_of_the_next_caller() -> None:
    async def run() -> None:
        async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            body = (await read_message(reader)).body
            said = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n"
            writer.write(said + body + said + b"!")
            await reader.read()

        async with stand(twice) as here, here.caller() as caller:
            for body in (b"a", b"b", b"c"):
                assert (await caller.ask(here.request(body))).body == body

    asyncio.run(run())


def test_an_early_answer_ends_the_request() -> None:
    async def run() -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_head(reader)
            writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            await reader.readexactly(1000)

        async with stand(refuse, limits=GatewayLimits(held_bytes=1000)) as here, here.caller() as caller:
            await caller.send(here.request(b"a" * 2000, content_length="4000"))
            assert (await caller.answer()).status == 413
            # The rest of the body must not be taken for a request.
            await caller.send(here.request(b"inner")[:2000])
            assert await caller.rest() == b""
            await here.empty()

    asyncio.run(run())


def test_a_caller_that_goes_away_takes_its_call_with_it() -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            await reader.read()
            ended.set()

        async with stand(wait) as here:
            async with here.caller() as caller:
                await caller.send(here.request(b"x"))
                await eventually_async(lambda: here.book.inside[here.book.ports[ECHO]] == 1)
            async with asyncio.timeout(SECONDS):
                await ended.wait()
            await here.empty()

    asyncio.run(run())


def test_a_caller_that_goes_away_while_a_server_is_started_is_not_inside() -> None:
    async def run() -> None:
        async with stand() as here:
            here.book.opening = asyncio.Event()
            async with here.caller() as caller:
                await caller.send(here.request(b"x"))
                await eventually_async(lambda: len(here.book.entries) == 1)
            here.book.opening.set()
            assert (await here.ask(here.request(b"y"))).status == 200
            await here.empty()
            assert [each.body for each in here.received] == [b"y"]

    asyncio.run(run())


def test_closing_lets_calls_end_and_then_hangs_up() -> None:
    async def run() -> None:
        go_on = asyncio.Event()

        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            body = (await read_message(reader)).body
            if body == b"soon":
                await go_on.wait()
                writer.write(OK)
            await reader.read()

        async with stand(late) as here, here.caller() as soon, here.caller() as never, here.caller() as idle:
            await soon.send(here.request(b"soon"))
            await eventually_async(lambda: len(here.book.entries) == 1)
            closing = asyncio.create_task(here.gateway.close(SECONDS))
            assert await idle.rest() == b""
            go_on.set()
            assert (await soon.answer()).status == 200
            await closing
            assert await never.rest() == b""

    asyncio.run(run())


def test_closing_does_not_wait_for_streams_of_news() -> None:
    async def run() -> None:
        async def news(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            await reader.read()

        async with stand(news) as here, here.caller() as caller:
            await caller.send(here.request(method="GET"))
            await read_head(caller.reader)
            async with asyncio.timeout(SECONDS):
                await here.gateway.close(10 * SECONDS)
            assert await caller.rest() == b""
            assert not any(here.book.inside.values())

    asyncio.run(run())


def test_closing_does_not_wait_for_ever() -> None:
    async def run() -> None:
        async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with stand(never) as here, here.caller() as caller:
            await caller.send(here.request(b"x"))
            await eventually_async(lambda: len(here.book.entries) == 1)
            await here.gateway.close(0.01)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await caller.answer()
            assert not any(here.book.inside.values())

    asyncio.run(run())
