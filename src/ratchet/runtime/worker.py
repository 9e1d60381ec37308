"""A worker: claims jobs, does them, and shows that it lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import Topic
from ratchet.ledger.database import now_ms
from ratchet.runtime.complaint import Complaint
from ratchet.runtime.execution import Execution, Running, Why
from ratchet.runtime.heartbeat import Heartbeat
from ratchet.runtime.job_rows import stops_wanted
from ratchet.runtime.schedules import fire, list_schedules

if TYPE_CHECKING:
    from ratchet.runtime.job import Job
    from ratchet.runtime.runtime import Runtime


# Looked at this often even when nothing is due: a schedule may be new, and the time of day may have been set.
_LOOK_SECONDS = 1.0


class Clock:
    """Looks at the schedules whenever the next one is due. Every worker has one; for each time one of them fires."""

    def __init__(self, runtime: Runtime, actor: str) -> None:
        self._runtime = runtime
        self._actor = actor
        self._stop = threading.Event()
        self._trouble = Complaint(_log, "cannot look at the schedules", "the schedules are looked at again")
        self._thread = threading.Thread(target=self._run, name="ratchet-clock", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def look(self, now: float) -> float:
        """Fire what is due at `now`; the seconds after which to look again."""
        with self._runtime.ledger.read() as tx:
            found = list_schedules(tx)
        pause = _LOOK_SECONDS
        for schedule in found:
            first = schedule.waits_for()
            # A mark ahead of the clock is one to be put right.
            if schedule.seen_at / 1000 > now or (first is not None and first <= now):
                with self._runtime.ledger.write(actor=self._actor) as tx:
                    fire(tx, self._runtime.jobs, schedule.name, now)
            elif first is not None:
                pause = min(pause, first - now)
        return pause

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                pause = self.look(time.time())
                self._trouble.end()
            except LedgerUnavailable as error:
                pause = _LOOK_SECONDS
                self._trouble.make(error)
            except Exception:  # noqa: BLE001 - a clock goes on: one bad schedule must not stop the others for ever
                pause = _LOOK_SECONDS
                _log.exception("a look at the schedules went wrong")


_log = logging.getLogger(__name__)
# Looked for even without a ring, so that one that was lost costs time and nothing else.
_STOPS_SECONDS = 2.0
_IN_OTHER_HANDS_SECONDS = 0.05


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
        self._places = ThreadPoolExecutor(self.slots, thread_name_prefix="ratchet-place")
        self._draining = threading.Event()
        self._stopped = threading.Event()
        self._jobs_rung = threading.Event()
        self._stops_rung = threading.Event()
        self._heartbeat = Heartbeat(
            runtime,
            role,
            self.slots,
            busy=lambda: len(self._execution.running),
            lost=lambda: self._execution.end_all(Why.SUPERSEDED),
        )
        self._execution = Execution(runtime, self._heartbeat.process_id, self._loop, self._plain)
        self._clock = Clock(runtime, self._heartbeat.process_id)
        self._claiming = threading.Thread(target=self._watch_jobs, name="ratchet-jobs", daemon=True)
        self._others = [
            threading.Thread(target=self._run_loop, name="ratchet-loop", daemon=True),
            threading.Thread(target=self._watch_stops, name="ratchet-stops", daemon=True),
        ]

    @property
    def process_id(self) -> str:
        return self._heartbeat.process_id

    def start(self) -> None:
        """Enter the fleet and begin to claim jobs."""
        self.runtime.kinds.start(self.runtime)
        self._heartbeat.start()
        for thread in (*self._others, self._claiming):
            thread.start()
        self._clock.start()
        _log.info("%s %s takes jobs in %d slots", self.role, self.process_id, self.slots)

    def stop(self, drain_seconds: float | None = None) -> None:
        """Drain: take nothing new, let what runs finish for a while, give the rest back, and leave."""
        limit = self.runtime.settings.runtime.drain_seconds if drain_seconds is None else drain_seconds
        _log.info("%s %s drains", self.role, self.process_id)
        self._draining.set()
        self._jobs_rung.set()
        self._clock.stop()
        self._heartbeat.drain()
        deadline = time.monotonic() + limit
        while self._execution.running and time.monotonic() < deadline:
            time.sleep(0.02)
        self._execution.hurry.set()
        # What it has claimed by now is in its place, and ended with the others.
        self._claiming.join()
        self._execution.end_all(Why.DRAINED)
        self._places.shutdown(wait=True)
        self._heartbeat.stop()
        self._stopped.set()
        self._stops_rung.set()
        self._plain.shutdown(wait=False, cancel_futures=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._others:
            thread.join()

    def _watch_jobs(self) -> None:
        """Claim jobs, whenever there is room and somebody rings or the time of one has come."""
        pause = 0.0
        with self.runtime.ledger.bell.listening(self._jobs_rung.set, Topic.JOBS):
            while not self._draining.is_set():
                self._jobs_rung.wait(pause)
                self._jobs_rung.clear()
                if not self._draining.is_set():
                    pause = self._claim()

    def _claim(self) -> float:
        """Claim what there is room for, and begin it; the seconds after which to look again."""
        room = 0
        while room < self.slots and self._free.acquire(blocking=False):
            room += 1
        claimed: list[Job] = []
        pause = self.runtime.settings.runtime.poll_seconds
        try:
            look = self.runtime.jobs.look
            claimed, again_at = self._execution.patiently(lambda tx: look(tx, self.process_id, room))
            if again_at is not None:
                ahead = (again_at - now_ms()) / 1000
                # What is due and still not claimed is in the hands of another this moment.
                pause = min(pause, ahead if ahead > 0 else _IN_OTHER_HANDS_SECONDS)
        except LedgerUnavailable as error:
            _log.warning("left before the database came back: %s", error)
        except Exception:  # noqa: BLE001 - a worker goes on: it lives, so no other would take its place
            _log.exception("a look for jobs went wrong")
        finally:
            for _ in range(room - len(claimed)):
                self._free.release()
        for job in claimed:
            self._places.submit(self._work, job)
        return pause

    def _work(self, job: Job) -> None:
        """Do a job, then the next that lies ready, until there is none. Holds one place, and gives it back."""
        last: Running | None = None
        try:
            following: Job | None = job
            while following is not None:
                following, last = self._execution.do(following, go_on=not self._draining.is_set())
        except LedgerUnavailable as error:
            _log.warning("job %s is left to others: %s", job.id, error)
        except Exception:  # noqa: BLE001 - nobody above could do better: the job is taken over when we leave
            _log.exception("job %s could not be handled", job.id)
        finally:
            if last is None:
                self._vacate()
            else:
                last.when_gone(self._vacate)

    def _vacate(self) -> None:
        self._free.release()
        # A ring may have come while there was no room.
        self._jobs_rung.set()

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
        with self.runtime.ledger.bell.listening(self._stops_rung.set, Topic.STOPS):
            while not self._stopped.is_set():
                self._stops_rung.wait(_STOPS_SECONDS)
                self._stops_rung.clear()
                if not self._execution.running:
                    continue
                with contextlib.suppress(LedgerUnavailable), self.runtime.ledger.read() as tx:
                    for job_id in stops_wanted(tx, self.process_id):
                        running = self._execution.running.get(job_id)
                        if running is not None:
                            running.end(Why.STOPPED)
