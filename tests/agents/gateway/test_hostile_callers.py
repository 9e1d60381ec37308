"""Callers that speak HTTP badly, slowly, or with intent."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.agents.gateway import GatewayLimits
from tests.agents.gateway.wire import ECHO, OK, SECONDS, Caller, Stand, read_message, stand

CHUNKED = {"content_length": None, "transfer_encoding": "chunked"}


def smuggling(here: Stand) -> dict[str, bytes]:
    """Requests that two readers could cut at different places."""
    inner = here.request(b"inner")
    host = f"Host: 127.0.0.1:{here.port}\r\n".encode()
    start = b"POST /agents/echo/runner/mcp HTTP/1.1\r\n" + host
    return {
        "length and chunks": here.request(b"0\r\n\r\n" + inner, transfer_encoding="chunked"),
        "chunks and length": start
        + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
        + inner,
        "two lengths": start + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n" + inner,
        "a list of lengths": start + b"Content-Length: 0, 5\r\n\r\n" + inner,
        "a signed length": start + b"Content-Length: +5\r\n\r\nhello",
        "a length of hex": start + b"Content-Length: 0x5\r\n\r\nhello",
        "two encodings": start
        + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"
        + inner,
        "an unknown encoding": start + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
        "an encoding before chunks": start + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + inner,
        "chunks in HTTP/1.0": start.replace(b"1.1\r\n", b"1.0\r\n", 1)
        + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "a space before the colon": start + b"Content-Length : 5\r\n\r\nhello",
        "a folded line": start + b"X: a\r\n Content-Length: 5\r\n\r\n" + inner,
        "a bare line feed": start + b"X: a\nContent-Length: 5\r\n\r\nhello",
        "a bare carriage return": start + b"X: a\rContent-Length: 5\r\n\r\nhello",
        "a null": start + b"X: a\x00b\r\n\r\n",
        "a chunk size with a sign": start + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
        "a chunk that is longer than it says": start
        + b"Transfer-Encoding: chunked\r\n\r\n1\r\nhello\r\n0\r\n\r\n",
        "a chunk size beyond all bounds": start + b"Transfer-Encoding: chunked\r\n\r\n%b\r\n" % (b"f" * 32),
        "Connection names the length": start
        + b"Connection: content-length\r\nContent-Length: 5\r\n\r\nhello",
        "Connection names the session": start + b"Connection: mcp-session-id\r\nMcp-Session-Id: a\r\n\r\n",
        "two hosts": start + host + b"\r\n",
        "no host": b"POST /agents/echo/runner/mcp HTTP/1.1\r\n\r\n",
        "two sessions": start + b"Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n\r\n",
        "a session with a space": start + b"Mcp-Session-Id: a b\r\n\r\n",
        "an endless session": start + b"Mcp-Session-Id: %b\r\n\r\n" % (b"a" * 257),
        "two tokens": start + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
        "a target with a space": here.request(path="/agents/echo/runner/mcp x"),
        "HTTP/2": start.replace(b"1.1\r\n", b"2.0\r\n", 1) + b"\r\n",
        "HTTP/0.9": b"GET /agents/echo/runner/mcp\r\n\r\n",
        "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "an unknown method": here.request(method="BREW"),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "an upgrade": here.request(connection="upgrade", upgrade="websocket"),
        "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + host + b"\r\n",
        "another expectation": here.request(b"x", expect="200-ok"),
    }


def test_what_two_readers_could_understand_differently_reaches_no_server() -> None:
    async def run() -> None:
        async with stand() as here:
            for name, sent in smuggling(here).items():
                async with here.caller() as caller:
                    answered = await caller.ask(sent)
                    assert 400 <= answered.status <= 505, name
                    assert answered.headers["connection"] == "close", name
                    assert await caller.rest() == b"", name
            assert here.received == []
            assert here.book.entries == []

    asyncio.run(run())


def test_a_head_may_not_grow_for_ever() -> None:
    async def run() -> None:
        async with stand() as here:
            start = here.request(b"")[:-2]
            for name, sent in {
                "one long header": start + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
                "a header without end": start + b"X: " + b"a" * 400_000,
                "a name without end": start + b"X" * 400_000,
                "a target without end": b"GET /" + b"a" * 400_000,
                "a long target": here.request(path="/" + "a" * 70_000),
                "many headers": start + b"X: a\r\n" * 200 + b"\r\n",
                "trailers without end": here.request(b"0\r\n", **CHUNKED) + b"X: a\r\n" * 40_000,
                "a chunk extension without end": here.request(b"1;", **CHUNKED) + b"a" * 400_000,
                "nothing but line ends": b"\r\n" * 200_000,
            }.items():
                async with here.caller() as caller:
                    caller.writer.write(sent)
                    assert (await caller.answer()).status == 431, name
            assert here.received == []

    asyncio.run(run())


def test_a_body_may_not_grow_for_ever() -> None:
    async def run() -> None:
        limits = GatewayLimits(body_bytes=200_000, held_bytes=50_000)
        async with stand(limits=limits) as here:
            refused = await here.ask(here.request(b"", content_length="200001"))
            assert (refused.status, here.book.entries) == (413, [])
            async with here.caller() as caller:
                caller.writer.write(
                    here.request(b"", **CHUNKED) + (b"2710\r\n" + b"a" * 10_000 + b"\r\n") * 30
                )
                assert (await caller.answer()).status == 413
            assert (await here.ask(here.request(b"a" * 200_000))).status == 200
            assert [len(each.body) for each in here.received] == [200_000]
            await here.empty()

    asyncio.run(run())


def test_a_caller_that_is_refused_while_it_sends_still_reads_why() -> None:
    async def run() -> None:
        async with stand() as here, here.caller() as caller:
            await caller.send(here.request(bytes(8 * 2**20), content_length=str(2**30)))
            assert (await caller.answer()).status == 413
            assert await caller.rest() == b""

    asyncio.run(run())


async def pour(caller: Caller) -> None:
    while True:
        await caller.send(b"more")
        await asyncio.sleep(0)


def test_a_caller_that_is_refused_and_goes_on_sending_is_parted_from() -> None:
    async def run() -> None:
        limits = GatewayLimits(linger_seconds=0.05, look_seconds=0.01)
        async with stand(limits=limits) as here, here.caller() as caller:
            await caller.send(here.request(content_length=str(2**30)))
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(pour(caller), SECONDS)

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"POST /agents/echo", b"POST / HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_does_not_come_to_an_end_is_given_up(sent: bytes) -> None:
    async def run() -> None:
        async with (
            stand(limits=GatewayLimits(head_seconds=0.1, look_seconds=0.02)) as here,
            here.caller() as caller,
        ):
            answered = await caller.ask(sent)
            assert answered.status == 408
            assert await caller.rest() == b""

    asyncio.run(run())


def test_a_body_that_does_not_go_on_is_given_up_before_and_after_a_server_has_it() -> None:
    async def run() -> None:
        limits = GatewayLimits(body_seconds=0.1, look_seconds=0.02, held_bytes=1000)
        async with stand(limits=limits) as here:
            for begun in (b"a" * 10, b"a" * 5000):
                async with here.caller() as caller:
                    assert (await caller.ask(here.request(begun, content_length="9000"))).status == 408
            await here.empty()
            assert len(here.book.entries) == 1

    asyncio.run(run())


def test_a_silent_connection_is_closed_and_one_that_waits_for_its_answer_is_not() -> None:
    async def run() -> None:
        answer = asyncio.Event()

        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_message(reader)
            await answer.wait()
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            await reader.read()

        limits = GatewayLimits(idle_seconds=0.05, look_seconds=0.01)
        async with stand(late, limits=limits) as here, here.caller() as waiting, here.caller() as silent:
            await waiting.send(here.request(b"x"))
            assert (await silent.ask(here.request(b"x", path="/agents/nobody/runner/mcp"))).status == 404
            assert await silent.rest() == b""
            answer.set()
            assert (await waiting.answer()).status == 202
            assert await waiting.rest() == b""

    asyncio.run(run())


def test_requests_that_are_sent_ahead_are_answered_in_order() -> None:
    async def run() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                body = (await read_message(reader)).body
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

        async with stand(echo) as here, here.caller() as caller:
            wanted = [b"%d" % number for number in range(100)]
            caller.writer.write(b"".join(here.request(body) for body in wanted))
            assert [(await caller.answer()).body for _ in wanted] == wanted
            await here.empty()

    asyncio.run(run())


def test_a_bad_request_behind_a_good_one_is_refused_in_its_turn() -> None:
    async def run() -> None:
        async with stand() as here, here.caller() as caller:
            caller.writer.write(here.request(b"x") + here.request(path="/elsewhere") + here.request(b"never"))
            assert [(await caller.answer()).status for _ in range(2)] == [200, 404]
            assert await caller.rest() == b""
            assert [each.body for each in here.received] == [b"x"]

    asyncio.run(run())


def test_the_house_can_be_full() -> None:
    async def run() -> None:
        asked, released = asyncio.Semaphore(0), asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await read_message(reader)
                asked.release()
                await released.wait()
                writer.write(OK)

        full = GatewayLimits(connections=2)
        async with stand(hold, limits=full) as here, here.caller() as first, here.caller() as second:
            for each in (first, second):
                await each.send(here.request(b"x"))
                await asked.acquire()
            async with here.caller() as third:
                assert (await third.answer()).status == 503
                assert await third.rest() == b""
            released.set()
            assert [(await each.answer()).status for each in (first, second)] == [200, 200]
            assert (await here.ask(here.request(b"x"))).status == 200

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"POST /agents/echo/runner/mcp HTTP/1.1\r\nX-Slow: "])
def test_callers_that_ask_nothing_keep_out_none_who_asks(sent: bytes) -> None:
    async def run() -> None:
        full = GatewayLimits(connections=2)
        async with stand(limits=full) as here, here.caller() as first, here.caller() as second:
            for each in (first, second):
                await each.send(sent)
            async with here.caller() as asking:
                assert (await asking.ask(here.request(b"x"))).status == 200
                assert (await asking.ask(here.request(b"y"))).status == 200
            with contextlib.suppress(ConnectionResetError):
                assert await first.rest() == b""

    asyncio.run(run())


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(min_value=1, max_value=700), max_size=25))
def test_it_does_not_matter_where_the_bytes_of_requests_are_cut(cuts: list[int]) -> None:
    async def run() -> None:
        async with stand() as here, here.caller() as caller:
            sent = b"".join(
                [
                    here.request(b"first", mcp_session_id="abc"),
                    here.request(b"3\r\nsec\r\n3;x=y\r\nond\r\n0\r\nTrailer: x\r\n\r\n", **CHUNKED),
                    here.request(method="GET"),
                    here.request(b"last", connection="close"),
                ]
            )
            edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
            for start, end in itertools.pairwise(edges):
                await caller.send(sent[start:end])
                # Lets the gateway read this much before there is more.
                await asyncio.sleep(0)
            assert [(await caller.answer()).status for _ in range(4)] == [200] * 4
            assert await caller.rest() == b""
            assert [each.body for each in here.received] == [b"first", b"second", b"", b"last"]
            assert here.book.entries == [(ECHO, "abc"), (ECHO, None), (ECHO, None), (ECHO, None)]
            await here.empty()

    asyncio.run(run())


def test_every_single_byte_may_come_alone() -> None:
    async def run() -> None:
        async with stand() as here, here.caller() as caller:
            for byte in here.request(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n", **CHUNKED):
                await caller.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await caller.answer()).status == 200
            assert [each.body for each in here.received] == [b"onetwo"]

    asyncio.run(run())
