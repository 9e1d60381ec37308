"""Waiting for a run until it stands still."""

from __future__ import annotations

import asyncio
import contextlib

from ratchet.ledger.events import Filter, last_id
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.runs import Run, get_run
from ratchet.ledger.subscription import follow_async


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
