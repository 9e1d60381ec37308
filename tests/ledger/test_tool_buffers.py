"""Buffers: values gathered by many, given back once by the write that makes one full or finds it old."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ratchet.ledger import Ledger
from ratchet.ledger.tools import add_to_buffer, count_buffered


def test_an_old_value_empties_the_buffer_with_the_next_write(ledger: Ledger) -> None:
    with ledger.write() as tx:
        assert add_to_buffer(tx, "b", 1, most=10, seconds=5).count == 1
        tx.now += 4_999
        assert add_to_buffer(tx, "b", 2, most=10, seconds=5).flushed is None
        tx.now += 1
        assert add_to_buffer(tx, "b", 3, most=10, seconds=5).flushed == (1, 2, 3)


def test_of_many_writers_at_once_each_value_is_given_back_once(ledger: Ledger) -> None:
    def write(value: int) -> tuple[int, ...]:
        with ledger.write() as tx:
            return add_to_buffer(tx, "b", value, most=4).flushed or ()

    with ThreadPoolExecutor(4) as threads:
        given = [value for flushed in threads.map(write, range(40)) for value in flushed]
    assert sorted(given) == list(range(40))
    with ledger.read() as tx:
        assert count_buffered(tx, "b") == 0
