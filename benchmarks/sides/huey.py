"""Huey on a SQLite file that is synced at every commit."""

from __future__ import annotations

import time
from typing import Any

from huey import SqliteHuey

from benchmarks import tally


class HueySide:
    def __init__(self, place: dict[str, Any]) -> None:
        self._huey = SqliteHuey(filename=place["file"], fsync=True)
        self._tick = self._huey.task()(tally.tick)
        self._stamp = self._huey.task()(tally.stamp)
        # As shipped an idle worker looks less and less often, up to every ten seconds.
        self._waits = {} if place["waits"] == "shipped" else {"initial_delay": 0.005, "max_delay": 0.005}

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self._tick()

    def enqueue_together(self, count: int) -> None:
        raise NotImplementedError("Huey has no way to add many at once")

    def enqueue_stamp(self) -> None:
        self._stamp(time.monotonic_ns())

    def finished(self) -> int:
        return -1

    def work(self) -> None:
        self._huey.create_consumer(workers=1, **self._waits).run()

    def work_here(self) -> None:
        raise NotImplementedError("a Huey consumer is a process of its own")
