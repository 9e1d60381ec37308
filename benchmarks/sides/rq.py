"""RQ on Redis: jobs in the worker's own process, or each in a forked one as shipped."""

from __future__ import annotations

import time
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker, Worker

from benchmarks import tally


class RqSide:
    def __init__(self, place: dict[str, Any], *, forking: bool) -> None:
        self._redis = Redis(unix_socket_path=place["socket"])
        self._queue = Queue(place["queue"], connection=self._redis)
        self._forking = forking

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            self._queue.enqueue(tally.tick)

    def enqueue_together(self, count: int) -> None:
        self._queue.enqueue_many([Queue.prepare_data(tally.tick) for _ in range(count)])

    def enqueue_stamp(self) -> None:
        self._queue.enqueue(tally.stamp, time.monotonic_ns())

    def finished(self) -> int:
        return self._queue.finished_job_registry.count

    def work(self) -> None:
        kind = Worker if self._forking else SimpleWorker
        kind([self._queue], connection=self._redis).work(logging_level="ERROR")

    def work_here(self) -> None:
        raise NotImplementedError("an RQ worker is a process of its own")
