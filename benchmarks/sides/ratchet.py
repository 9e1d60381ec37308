"""Ratchet, on whichever database the place names."""

from __future__ import annotations

import signal
import time
from typing import Any

from benchmarks import tally
from ratchet.config import load_settings
from ratchet.runtime import JobContext, Kinds, Worker, count_jobs, open_ledger, open_runtime


class RatchetSide:
    def __init__(self, place: dict[str, Any]) -> None:
        loaded = load_settings(place, env={})
        kinds = Kinds()
        kinds.add("tick", _tick)
        kinds.add("stamp", _stamp)
        self.ledger = open_ledger(loaded)
        self.runtime = open_runtime(loaded, self.ledger, kinds)

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            with self.ledger.write(actor="bench") as tx:
                self.runtime.enqueue(tx, "tick")

    def enqueue_together(self, count: int) -> None:
        with self.ledger.write(actor="bench") as tx:
            for _ in range(count):
                self.runtime.enqueue(tx, "tick")

    def enqueue_stamp(self) -> None:
        sent = time.monotonic_ns()
        with self.ledger.write(actor="bench") as tx:
            self.runtime.enqueue(tx, "stamp", {"sent": sent})

    def finished(self) -> int:
        with self.ledger.read() as tx:
            return sum(counts.get("finished", 0) for counts in count_jobs(tx).values())

    def work(self) -> None:
        stop = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, stop)
        worker = Worker(self.runtime)
        worker.start()
        signal.sigwait(stop)
        worker.stop(0)

    def work_here(self) -> None:
        Worker(self.runtime).start()


async def _tick(_job: JobContext) -> None:
    tally.tick()


async def _stamp(job: JobContext) -> None:
    tally.stamp(job.payload["sent"])
