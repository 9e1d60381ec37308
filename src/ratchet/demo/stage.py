"""What an act works with: the ledger, the runtime, a place of its own, and somebody to tell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ratchet.config import Loaded
from ratchet.demo.place import Place
from ratchet.kernel import RatchetError, RunStatus
from ratchet.ledger import Event, Filter, Ledger, Run, follow
from ratchet.ledger.runs import get_run, list_runs
from ratchet.runtime import Runtime

_STANDS = {f"run.{status}" for status in RunStatus if status.stands}


class Interrupted(Exception):
    """Somebody wants the demo to stop. What was done stays, and the next demo goes on from there."""


class ActFailed(RatchetError):
    """What an act wanted to show did not come about."""


@dataclass(frozen=True, slots=True)
class Stage:
    """`stop` is set when the demo is to end; `say` tells a line of this act."""

    loaded: Loaded
    ledger: Ledger
    runtime: Runtime
    place: Place
    stop: threading.Event
    say: Callable[[str], None]

    def find_run(self, kind: str, name: str) -> Run | None:
        """The newest run of that name: of a demo that was cut off, the one that it had begun."""
        with self.ledger.read() as tx:
            found = list_runs(tx, kind=kind, name=name, limit=1)
        return found[0] if found else None

    def carried(self, run_id: int, hear: Callable[[Event], None]) -> Run:
        """Tell each event of a run from its beginning until it has ended.

        Raises `ActFailed` when it did not end well, and `Interrupted`.
        """
        for event in follow(self.ledger, 0, where=Filter(run_id=run_id), stop=self.stop):
            hear(event)
            if event.type in _STANDS:
                with self.ledger.read() as tx:
                    run = get_run(tx, run_id)
                if run.status is RunStatus.COMPLETED:
                    return run
                if run.status.stands:
                    raise ActFailed(
                        f"run {run_id} is {run.status}: {run.reason or 'no reason was given'}",
                        hint=f"ratchet runs show {run_id}",
                    )
        raise Interrupted
