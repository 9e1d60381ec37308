"""The clock of a worker: it fires what is due, and what came due while nobody was there."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from ratchet.kernel import LedgerUnavailable
from ratchet.runtime.complaint import Complaint
from ratchet.runtime.schedules import fire, list_schedules

if TYPE_CHECKING:
    from ratchet.runtime.runtime import Runtime

_log = logging.getLogger(__name__)
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
