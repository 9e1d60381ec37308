"""Following the ledger live: every event after a number, as it happens, none missed and none twice."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from ratchet.ledger import events
from ratchet.ledger.bell import SAFETY_SECONDS
from ratchet.ledger.events import Event, Filter

if TYPE_CHECKING:
    from ratchet.ledger.ledger import Ledger

_BATCH = 500


def follow(
    ledger: Ledger, after: int, *, where: Filter | None = None, stop: threading.Event | None = None
) -> Iterator[Event]:
    """Yield events above `after` for ever, or until `stop` is set (it is noticed at the next ring or second)."""
    rung = threading.Event()
    with ledger.bell.listening(rung.set):
        while stop is None or not stop.is_set():
            rung.clear()
            batch = _new(ledger, after, where)
            for event in batch:
                after = event.id
                yield event
            if len(batch) < _BATCH:
                rung.wait(SAFETY_SECONDS if stop is None else min(1.0, SAFETY_SECONDS))


async def follow_async(ledger: Ledger, after: int, *, where: Filter | None = None) -> AsyncIterator[Event]:
    """Like `follow`, without a thread of its own; cancel the task to end it."""
    loop = asyncio.get_running_loop()
    rung = asyncio.Event()

    def ring() -> None:
        # The loop may have closed between the ring and this call; then nobody is left to wake.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(rung.set)

    with ledger.bell.listening(ring):
        while True:
            rung.clear()
            batch = await asyncio.to_thread(_new, ledger, after, where)
            for event in batch:
                after = event.id
                yield event
            if len(batch) < _BATCH:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(rung.wait(), SAFETY_SECONDS)


def _new(ledger: Ledger, after: int, where: Filter | None) -> list[Event]:
    with ledger.read() as tx:
        return events.since(tx.connection, after, where=where, limit=_BATCH)
