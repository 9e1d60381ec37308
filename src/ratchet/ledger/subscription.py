"""Following the ledger live: every event after a number, as it happens, none missed and none twice.

A database that goes away is waited for: the follower goes on where it was when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import events
from ratchet.ledger.bell import SAFETY_SECONDS
from ratchet.ledger.events import Event, Filter, last_id
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.runs import Run, get_run

if TYPE_CHECKING:
    from ratchet.ledger.ledger import Ledger


_log = logging.getLogger(__name__)
_BATCH = 500
RETRY_SECONDS = 1.0


def follow(
    ledger: Ledger,
    after: int,
    *,
    where: Filter | None = None,
    stop: threading.Event | None = None,
    safety_seconds: float = SAFETY_SECONDS,
) -> Iterator[Event]:
    """Yield events above `after` for ever, or until `stop` is set (it is noticed at the next ring or second).

    Each ring wakes it; it also looks every `safety_seconds`, since a ring may be lost with a connection.
    """
    rung = threading.Event()
    with ledger.bell.listening(rung.set):
        while stop is None or not stop.is_set():
            rung.clear()
            batch = _new(ledger, after, where)
            for event in batch or []:
                after = event.id
                yield event
            if batch is None:
                rung.wait(RETRY_SECONDS)
            elif len(batch) < _BATCH:
                rung.wait(safety_seconds if stop is None else min(1.0, safety_seconds))


async def follow_async(
    ledger: Ledger, after: int, *, where: Filter | None = None, stop: asyncio.Event | None = None
) -> AsyncGenerator[Event, None]:
    """Like `follow`, without a thread of its own; ring the bell after setting `stop`, or cancel the task."""
    with rings(ledger) as rung:
        while stop is None or not stop.is_set():
            rung.clear()
            batch = await asyncio.to_thread(_new, ledger, after, where)
            for event in batch or []:
                after = event.id
                yield event
                if stop is not None and stop.is_set():
                    return
            if batch is None or len(batch) < _BATCH:
                await wait_for_ring(rung, RETRY_SECONDS if batch is None else SAFETY_SECONDS)


@contextlib.contextmanager
def rings(ledger: Ledger) -> Iterator[asyncio.Event]:
    """An event of this loop that is set whenever something was written."""
    loop = asyncio.get_running_loop()
    rung = asyncio.Event()

    def ring() -> None:
        # The loop may have closed between the ring and this call; then nobody is left to wake.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(rung.set)

    with ledger.bell.listening(ring):
        yield rung


async def wait_for_ring(rung: asyncio.Event, seconds: float) -> None:
    """Until the next ring, or so long: one may be lost with a connection."""
    # Not `wait_for`: that forgets a cancellation which comes together with a ring.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await rung.wait()


def _new(ledger: Ledger, after: int, where: Filter | None) -> list[Event] | None:
    """What is new; `None` when the database cannot be read for now."""
    try:
        with ledger.read() as tx:
            return events.since(tx.connection, after, where=where, limit=_BATCH)
    except LedgerUnavailable as error:
        _log.warning("cannot follow for now, trying again: %s", error)
        return None


async def run_at_rest(ledger: Ledger, run_id: int, seconds: float) -> Run:
    """The run once it has ended, is paused or blocked; after so many seconds as it is then."""
    after, run = await asyncio.to_thread(_now, ledger, run_id)
    if run.status.stands or not seconds:
        return run
    changes = follow_async(ledger, after, where=Filter(run_id=run_id, type="run.*"))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), contextlib.aclosing(changes):
            async for _ in changes:
                _, run = await asyncio.to_thread(_now, ledger, run_id)
                if run.status.stands:
                    return run
    return run


def _now(ledger: Ledger, run_id: int) -> tuple[int, Run]:
    with ledger.read() as tx:
        return last_id(tx.connection), get_run(tx, run_id)
