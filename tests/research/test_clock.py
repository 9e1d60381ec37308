"""The time that a run is said to have run."""

from __future__ import annotations

import asyncio
import time

from ratchet.kernel import Misuse, RunId
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.research import get_standing
from ratchet.research.campaign import RunClock
from ratchet.runtime import GroupCommit
from tests.research.views.made_up import make_run


def active_ms(ledger: Ledger, run: RunId) -> int:
    with ledger.read() as tx:
        return get_standing(tx, run).active_ms


def test_who_shares_a_transaction_counts_the_time_once_and_who_fails_takes_none_with_it(
    ledger: Ledger,
) -> None:
    run, clock = make_run(ledger), RunClock()

    def count(tx: Transaction) -> None:
        clock.count(tx, run)

    def fail(tx: Transaction) -> None:
        count(tx)
        raise Misuse("not like this")

    async def scene() -> None:
        together = GroupCommit(ledger)
        await asyncio.gather(*map(together.write, (count, fail, count)), return_exceptions=True)

    began = time.monotonic()
    time.sleep(0.3)
    asyncio.run(scene())
    passed = (time.monotonic() - began) * 1000
    assert 300 <= active_ms(ledger, run) <= passed + 1
