"""A worker: takes jobs, does them, and shows that it lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import Transaction
from ratchet.runtime import schedules
from ratchet.runtime.delivery import Ticket
from ratchet.runtime.execution import Execution
from ratchet.runtime.heart import Heart
from ratchet.runtime.jobs import stops_wanted
from ratchet.runtime.running import Running, Why
from ratchet.runtime.runtime import Runtime

_log = logging.getLogger(__name__)
_NO_ROOM_SECONDS = 0.5
# Looked at even without a ring.
_STOPS_SECONDS = 2.0


class Worker:
    """Does jobs in `slots` places. Start it once, stop it once."""

    def __init__(self, runtime: Runtime, *, role: str = "worker", slots: int | None = None) -> None:
        self.runtime = runtime
        self.role = role
        self.slots = slots if slots is not None else runtime.settings.runtime.slots
        # One permit per place. A handler that was left behind keeps its place until it has really ended.
        self._free = threading.BoundedSemaphore(self.slots)
        self._loop = asyncio.new_event_loop()
        self._plain = ThreadPoolExecutor(self.slots, thread_name_prefix="ratchet-plain")
        self._direct = ThreadPoolExecutor(self.slots, thread_name_prefix="ratchet-direct")
        self._draining = threading.Event()
        self._rung = threading.Event()
        self._stopped = threading.Event()
        self._heart = Heart(
            runtime,
            role,
            self.slots,
            busy=lambda: len(self._execution.running),
            lost=lambda: self._execution.end_all(Why.SUPERSEDED),
        )
        self._execution = Execution(runtime, self._heart.process_id, self._loop, self._plain)
        self._own_threads = [
            threading.Thread(target=self._run_loop, name="ratchet-loop", daemon=True),
            threading.Thread(target=self._watch_stops, name="ratchet-stops", daemon=True),
        ]

    @property
    def process_id(self) -> str:
        return self._heart.process_id

    def start(self) -> None:
        """Enter the fleet and begin to take jobs."""
        for thread in self._own_threads:
            thread.start()
        self._heart.start()
        self.runtime.apply_queues()
        self.runtime.apply_schedules()
        self.runtime.delivery.open(self.process_id, self._on_ticket, self._on_tick)
        self.runtime.attach(self)
        _log.info("%s %s takes jobs in %d slots", self.role, self.process_id, self.slots)

    def start_here(self, ticket: Ticket) -> bool:
        """Take a job of this process without the queue, if there is room."""
        if self._draining.is_set() or not self._free.acquire(blocking=False):
            return False
        self._direct.submit(self._work, ticket)
        return True

    def stop(self, drain_seconds: float | None = None) -> None:
        """Drain: take nothing new, let what runs finish for a while, give the rest back, and leave."""
        limit = self.runtime.settings.runtime.drain_seconds if drain_seconds is None else drain_seconds
        _log.info("%s %s drains", self.role, self.process_id)
        self._draining.set()
        self._heart.drain()
        self.runtime.attach(None)
        closing = threading.Thread(
            target=self.runtime.stop_receiving,
            args=(limit + 15 if self._execution.running else 0,),
            daemon=True,
        )
        closing.start()
        deadline = time.monotonic() + limit
        while self._execution.running and time.monotonic() < deadline:
            time.sleep(0.02)
        self._execution.hurry.set()
        self._execution.end_all(Why.DRAINED)
        self._direct.shutdown(wait=True)
        closing.join()
        self._heart.stop()
        self._stopped.set()
        self._rung.set()
        self._plain.shutdown(wait=False, cancel_futures=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._own_threads:
            thread.join()
        self.runtime.close()

    def _on_ticket(self, ticket: Ticket) -> None:
        if self._draining.is_set() or not self._free.acquire(blocking=False):
            decline = self.runtime.jobs.decline
            self._execution.patiently(lambda tx: decline(tx, ticket, delay_seconds=_NO_ROOM_SECONDS))
        else:
            self._work(ticket)

    def _work(self, ticket: Ticket) -> None:
        """Do the job of a ticket, then those that waited for its key. Holds one place, and gives it back."""
        last: Running | None = None
        try:
            following: Ticket | None = ticket
            while following is not None:
                following, last = self._execution.do(following)
        except LedgerUnavailable as error:
            _log.warning("job %s is left to others: %s", ticket.job_id, error)
        except Exception:  # noqa: BLE001 - nobody above could do better: reconciling finds the job again
            _log.exception("job %s could not be handled", ticket.job_id)
        finally:
            if last is None:
                self._free.release()
            else:
                last.when_gone(self._free.release)

    def _on_tick(self, name: str, moment: float) -> None:
        def fire(tx: Transaction) -> None:
            schedule = schedules.due(tx, name, moment, time.time())
            if schedule is not None:
                self.runtime.enqueue(
                    tx,
                    schedule.kind,
                    schedule.payload,
                    queue=schedule.queue,
                    key=schedule.key,
                    once=f"schedule:{name}:{int(moment)}",
                )

        self._execution.patiently(fire)

    def _run_loop(self) -> None:
        """The event loop of the async handlers. One that outlived its grace is cut off with it."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _watch_stops(self) -> None:
        """End running jobs whose stop somebody asked for, in any process."""
        with self.runtime.ledger.bell.listening(self._rung.set):
            while not self._stopped.is_set():
                self._rung.wait(_STOPS_SECONDS)
                self._rung.clear()
                if not self._execution.running:
                    continue
                with contextlib.suppress(LedgerUnavailable), self.runtime.ledger.read() as tx:
                    for job_id in stops_wanted(tx, self.process_id):
                        running = self._execution.running.get(job_id)
                        if running is not None:
                            running.end(Why.STOPPED)
