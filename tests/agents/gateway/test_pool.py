"""Connections that are kept, and those that only seem to be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from ratchet.agents.gateway import GatewayLimits
from ratchet.agents.gateway.backend import Pool


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        bound.settimeout(20)
        yield bound


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def test_a_connection_that_was_given_back_is_taken_again(listening: socket.socket) -> None:
    async def run() -> None:
        pool = Pool(GatewayLimits())
        first = await pool.take(port_of(listening), new=False)
        pool.give_back(first)
        assert await pool.take(port_of(listening), new=False) is first
        first.abort()

    asyncio.run(run())


@pytest.mark.parametrize("last_words", [b"", b"unasked"])
def test_one_that_the_server_has_left_a_moment_ago_is_not_taken(
    listening: socket.socket, last_words: bytes
) -> None:
    async def run() -> None:
        pool = Pool(GatewayLimits())
        first = await pool.take(port_of(listening), new=False)
        pool.give_back(first)
        accepted, _ = listening.accept()
        # Nothing runs between this and the next line that could hear of it.
        accepted.send(last_words)
        accepted.close()
        second = await pool.take(port_of(listening), new=False)
        assert second is not first
        second.abort()

    asyncio.run(run())


def test_no_more_are_kept_than_allowed(listening: socket.socket) -> None:
    async def run() -> None:
        pool = Pool(GatewayLimits(idle_backends=2))
        taken = [await pool.take(port_of(listening), new=True) for _ in range(3)]
        for each in taken:
            pool.give_back(each)
        again = [await pool.take(port_of(listening), new=False) for _ in range(3)]
        assert len(set(again) & set(taken)) == 2
        pool.close()
        for each in again:
            each.abort()

    asyncio.run(run())
