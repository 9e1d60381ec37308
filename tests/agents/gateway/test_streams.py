"""Answers and bodies that come piece by piece, and readers that take their time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from ratchet.agents.gateway import GatewayLimits
from tests.agents.gateway.wire import (
    ECHO,
    OK,
    SECONDS,
    Caller,
    Stand,
    read_chunk,
    read_head,
    read_message,
    stand,
)
from tests.waiting import eventually_async

MEGABYTE = 2**20
# What the kernel may hold of a connection over loopback, in each of the two that a call goes over.
MOST_ON_THE_WAY = 24 * MEGABYTE


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_events_arrive_one_by_one(method: str) -> None:
    async def run() -> None:
        read = asyncio.Event()

        async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            for number in range(5):
                event = b"data: %d\n\n" % number
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                # The next one comes only after this one has been read.
                await read.wait()
                read.clear()
            writer.write(b"0\r\n\r\n")

        async with stand(events) as here, here.caller() as caller:
            await caller.send(here.request(method=method, accept="text/event-stream"))
            async with asyncio.timeout(SECONDS):
                _, headers = await read_head(caller.reader)
                assert headers["content-type"] == "text/event-stream"
                for number in range(5):
                    assert await read_chunk(caller.reader) == b"data: %d\n\n" % number
                    read.set()
                assert await read_chunk(caller.reader) == b""
            await here.empty()

    asyncio.run(run())


def test_a_stream_begins_before_there_is_news() -> None:
    async def run() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            await reader.read()

        async with stand(silent) as here, here.caller() as caller:
            await caller.send(here.request(method="GET"))
            async with asyncio.timeout(SECONDS):
                line, _ = await read_head(caller.reader)
            assert line == "HTTP/1.1 200 OK"

    asyncio.run(run())


@pytest.mark.soak
def test_a_caller_that_does_not_read_is_not_read_for() -> None:
    async def run() -> None:
        size, written = 96 * MEGABYTE, 0

        async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal written
            await read_message(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
            while written < size:
                writer.write(bytes(MEGABYTE))
                await writer.drain()
                written += MEGABYTE

        async with stand(pour) as here:
            caller = await reluctant(here)
            await caller.send(here.request(b"x"))
            await steady(lambda: written)
            assert 0 < written < MOST_ON_THE_WAY
            assert len((await caller.answer()).body) == size
            await here.empty()
            await caller.close()

    asyncio.run(run())


def test_a_server_that_does_not_read_is_not_read_for() -> None:
    async def run() -> None:
        size, sent, read = 96 * MEGABYTE, 0, asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _, headers = await read_head(reader)
            await read.wait()
            left = int(headers["content-length"])
            while left:
                left -= len(await reader.read(MEGABYTE))
            writer.write(OK)

        async with stand(slow, limits=GatewayLimits(body_bytes=size)) as here, here.caller() as caller:
            await caller.send(here.request(b"", content_length=str(size)))

            async def pour() -> None:
                nonlocal sent
                while sent < size:
                    await caller.send(bytes(MEGABYTE))
                    sent += MEGABYTE

            pouring = asyncio.create_task(pour())
            await steady(lambda: sent)
            assert 0 < sent < MOST_ON_THE_WAY
            read.set()
            await pouring
            assert (await caller.answer()).status == 200
            await here.empty()

    asyncio.run(run())


def test_a_caller_that_never_reads_is_parted_from() -> None:
    async def run() -> None:
        async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"100000\r\n" + bytes(MEGABYTE) + b"\r\n")
                await writer.drain()

        async with stand(pour, limits=GatewayLimits(stalled_seconds=0.1, look_seconds=0.02)) as here:
            caller = await reluctant(here)
            await caller.send(here.request(b"x"))
            await eventually_async(lambda: len(here.book.entries) == 1)
            await here.empty()
            await caller.close()

    asyncio.run(run())


def test_a_caller_that_leaves_a_stream_ends_it() -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
            await reader.read()
            ended.set()

        async with stand(endless) as here:
            async with here.caller() as caller:
                await caller.send(here.request(method="GET"))
                await read_head(caller.reader)
                assert await read_chunk(caller.reader) == b"hello"
                assert here.book.inside[here.book.ports[ECHO]] == 1
            async with asyncio.timeout(SECONDS):
                await ended.wait()
            await here.empty()

    asyncio.run(run())


async def reluctant(here: Stand) -> Caller:
    """A caller whose connection holds little that it has not read."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    taken.connect(("127.0.0.1", here.port))
    reader, writer = await asyncio.open_connection(sock=taken, limit=65536)
    return Caller(reader, writer)


async def steady(value: Callable[[], int]) -> None:
    """Wait until a number no longer grows."""
    last, since = value(), asyncio.get_running_loop().time()
    async with asyncio.timeout(SECONDS):
        while not last or asyncio.get_running_loop().time() - since < 0.3:
            await asyncio.sleep(0.01)
            if value() != last:
                last, since = value(), asyncio.get_running_loop().time()
