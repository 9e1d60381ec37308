"""The heartbeat of a process: it shows that it lives, and takes over the jobs of those that no longer do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ratchet.kernel import LedgerUnavailable
from ratchet.observe import metrics
from ratchet.runtime import processes
from ratchet.runtime.job import started_by, started_on
from ratchet.runtime.processes import Complaint

if TYPE_CHECKING:
    from ratchet.ledger import Transaction
    from ratchet.runtime.runtime import Runtime

_log = logging.getLogger(__name__)
_LOOK_AFTER_SECONDS = 5.0


class Heartbeat:
    """Registers this process, beats in a thread of its own, and buries dead processes so that their jobs continue.

    `running` tells which jobs are at work here. `lost` is called when the others have given this process up: whatever
    it runs belongs to another now.
    """

    def __init__(
        self,
        runtime: Runtime,
        role: str,
        slots: int,
        *,
        running: Callable[[], Collection[int]],
        lost: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._ledger = runtime.ledger
        self._role = role
        self._slots = slots
        self._running = running
        self._lost = lost
        self._draining = False
        self._stop = threading.Event()
        self._snapshot: metrics.Snapshot = {}
        self._next_care = 0.0
        self._unknown: set[int] = set()
        self.process_id = processes.new_process_id()
        self._watch = processes.Watch(self.process_id, runtime.settings.runtime.dead_after_seconds)
        self._trouble = Complaint(_log, "cannot beat", "the heart beats again")
        self._thread = threading.Thread(target=self._run, name="ratchet-heart", daemon=True)

    def start(self) -> None:
        with self._ledger.write(actor=self.process_id) as tx:
            processes.register(tx, self.process_id, self._role, self._slots)
        self._thread.start()

    def drain(self) -> None:
        self._draining = True

    def stop(self) -> None:
        """Leave the fleet."""
        self._stop.set()
        self._thread.join()
        try:
            self._beat()
            self._bury(self.process_id, "stopped")
        except LedgerUnavailable as error:
            _log.warning("left without saying so, others will notice: %s", error)

    def _run(self) -> None:
        while True:
            try:
                self._beat()
                self._bury_the_dead()
                self._look_after()
                self._trouble.end()
            except LedgerUnavailable as error:
                self._watch.blind()
                self._trouble.make(error)
            except Exception:  # noqa: BLE001 - a heart continues: without it this process is given up while it works
                _log.exception("a heartbeat went wrong")
            if self._stop.wait(self._runtime.settings.runtime.heartbeat_seconds):
                return

    def _beat(self) -> None:
        snapshot = metrics.snapshot()
        with self._ledger.write(actor=self.process_id) as tx:
            alive = processes.beat(
                tx,
                self.process_id,
                busy=len(self._running()),
                draining=self._draining,
                snapshot=None if snapshot == self._snapshot else snapshot,
            )
        self._snapshot = snapshot
        if not alive:
            _log.warning("%s was given up by the others; its jobs are theirs now", self.process_id)
            self._lost()
            with self._ledger.write(actor=self.process_id) as tx:
                processes.register(tx, self.process_id, self._role, self._slots)

    def _bury_the_dead(self) -> None:
        with self._ledger.read() as tx:
            found = processes.list_processes(tx)
            working = started_on(tx)
        for process in self._watch.dead(found):
            with self._ledger.write(actor=self.process_id) as tx:
                gone = processes.declare_dead(tx, process)
            if gone:
                _log.warning("%s is gone; its jobs are queued again", process.id)
                self._bury(process.id, "died")
        for stranger in working - {process.id for process in found}:
            self._bury(stranger, "unknown")

    def _bury(self, process_id: str, reason: str) -> None:
        """Hand over everything a process had. May be repeated: its row goes last."""
        left = False
        while not left:
            with self._ledger.write(actor=self.process_id) as tx:
                tx.lock_keys(f"bury:{process_id}")
                if not self._runtime.jobs.take_over(tx, process_id):
                    processes.leave(tx, process_id, reason=reason)
                    left = True

    def _look_after(self) -> None:
        now = time.monotonic()
        if now >= self._next_care:
            self._next_care = now + _LOOK_AFTER_SECONDS
            with self._ledger.write(actor=self.process_id) as tx:
                freed = self._runtime.jobs.free_stranded(tx)
                unknown = self._give_back_unknown(tx)
            self._unknown = unknown
            if freed:
                _log.warning("%d jobs waited for a key that was free; they are queued again", freed)

    def _give_back_unknown(self, tx: Transaction) -> set[int]:
        """Queue again what this process has claimed and does not know of: the connection broke while the database
        confirmed the claim. Only what was seen so before: a job that was claimed a moment ago has not begun yet."""
        started, running = started_by(tx, self.process_id), set(self._running())
        unknown = [job for job in started if job.id not in running]
        for job in unknown:
            if job.id in self._unknown:
                self._runtime.jobs.release(tx, job, "its start was never confirmed")
        return {job.id for job in unknown}
