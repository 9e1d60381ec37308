"""The heartbeat of a process: it shows that it lives, and takes over the jobs of those that no longer do."""

from __future__ import annotations

import logging
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ratchet.kernel import LedgerUnavailable, RatchetError
from ratchet.ledger.database import database_now_ms, now_ms
from ratchet.observe import metrics
from ratchet.runtime import processes
from ratchet.runtime.job import started_by, started_on
from ratchet.runtime.processes import Complaint, ProcessFacts
from ratchet.runtime.resources import disk_free_bytes, gpus, memory_bytes

if TYPE_CHECKING:
    from ratchet.ledger import Transaction
    from ratchet.runtime.runtime import Runtime

_log = logging.getLogger(__name__)
_LOOK_AFTER_SECONDS = 5.0
_REPORT_SECONDS = 30.0
_STORE_SECONDS = 5.0
_CLUSTER_SECONDS = 3.0
# Who asks the fleet leaves a file of this name in the home, to see which processes share it.
MARK = "fleet-mark-"


class Heartbeat:
    """Registers this process, beats in a thread of its own, and buries dead processes so that their jobs continue.

    `running` tells which jobs are at work here. `lost` is called when the others have given this process up: whatever
    it runs belongs to another now. `url` is where a server answers.
    """

    def __init__(
        self,
        runtime: Runtime,
        role: str,
        slots: int,
        *,
        running: Callable[[], Collection[int]],
        lost: Callable[[], None],
        url: str | None = None,
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
        self._facts = machine_facts(runtime, url)
        self._answering: threading.Thread | None = None
        self._next_report = 0.0
        self._trouble = Complaint(_log, "cannot beat", "the heart beats again")
        self._thread = threading.Thread(target=self._run, name="ratchet-heart", daemon=True)

    def start(self) -> None:
        with self._ledger.write(actor=self.process_id) as tx:
            processes.register(tx, self.process_id, self._role, self._slots, self._facts)
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
            asked = processes.beat(
                tx,
                self.process_id,
                busy=len(self._running()),
                draining=self._draining,
                snapshot=None if snapshot == self._snapshot else snapshot,
            )
        self._snapshot = snapshot
        if asked is None:
            _log.warning("%s was given up by the others; its jobs are theirs now", self.process_id)
            self._lost()
            with self._ledger.write(actor=self.process_id) as tx:
                processes.register(tx, self.process_id, self._role, self._slots, self._facts)
        elif asked != self._facts.answered or self._reports_again():
            self._answer(asked)

    def _reports_again(self) -> bool:
        """What the layers above report changes while nobody asks."""
        if not self._runtime.reports or time.monotonic() < self._next_report:
            return False
        self._next_report = time.monotonic() + _REPORT_SECONDS
        return True

    def _answer(self, asked: int) -> None:
        """Look how this process is, in a thread: a store or a cluster may take long, and the heart must beat."""
        if self._answering is None or not self._answering.is_alive():
            self._answering = threading.Thread(target=self._report, args=(asked,), daemon=True)
            self._answering.start()

    def _report(self, asked: int) -> None:
        try:
            facts = self._facts
            if asked != facts.answered:
                facts = replace(probed_facts(self._runtime, facts), answered=asked)
            facts = replace(facts, **{name: find() for name, find in self._runtime.reports.items()})
            if facts == self._facts:
                return
            with self._ledger.write(actor=self.process_id) as tx:
                processes.report(tx, self.process_id, facts)
            self._facts = facts
        except RatchetError as error:
            _log.warning("cannot say how this process is: %s", error)

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


def machine_facts(runtime: Runtime, url: str | None) -> ProcessFacts:
    """What a process knows without asking anything."""
    settings = runtime.settings
    placement = settings.placement if settings.sets("placement") else None
    return ProcessFacts(
        python=platform.python_version(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=memory_bytes(),
        gpus=gpus(),
        home=str(runtime.home),
        url=url,
        placement="local"
        if placement is None
        else f"ray {placement.address}"
        if placement.kind == "ray"
        else placement.kind,
        artifacts=None if runtime.ledger.artifacts.bucket is None else runtime.ledger.artifacts.bucket.url,
    )


def probed_facts(runtime: Runtime, facts: ProcessFacts) -> ProcessFacts:
    """What a process finds when it tries the database, the store and the cluster."""
    with runtime.ledger.read() as tx:
        database_now_ms(tx.connection)
        before, began = now_ms(), time.perf_counter()
        theirs = database_now_ms(tx.connection)
        took = (time.perf_counter() - began) * 1000
    found: dict[str, Any] = {
        "ledger_ms": round(took, 2),
        "clock_ms": round(before + took / 2 - theirs, 1),
        "disk_free_bytes": disk_free_bytes(runtime.home),
        "marks": tuple(each.name.removeprefix(MARK) for each in runtime.home.glob(f"{MARK}*")),
        "placement_error": _cluster_error(facts.placement),
    }
    if facts.artifacts is not None:
        # Loaded here: most processes have no store.
        from ratchet.ledger.bucket import Bucket

        try:
            milliseconds = Bucket(facts.artifacts, patience_seconds=_STORE_SECONDS).probe()
            found |= {"store_ms": round(milliseconds, 1), "store_error": None}
        except RatchetError as error:
            found |= {"store_ms": None, "store_error": str(error)}
    return replace(facts, **found)


def _cluster_error(placement: str) -> str | None:
    kind, _, address = placement.partition(" ")
    host, _, port = address.rpartition(":")
    if kind == "ray" and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), _CLUSTER_SECONDS).close()
        except OSError as error:
            return f"there is no Ray at {address}: {error.strerror or error}"
    return None
