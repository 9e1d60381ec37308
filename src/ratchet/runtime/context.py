"""What a handler is given."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ratchet.kernel import Superseded
from ratchet.runtime.job_rows import check_lease

if TYPE_CHECKING:
    from ratchet.ledger import Ledger, Transaction
    from ratchet.runtime.job import Job
    from ratchet.runtime.runtime import Runtime


# How long an answer about the others counts: it costs a look at the ledger.
_GLANCE_SECONDS = 1.0


class GaveWay(Exception):
    """Raised by a handler that stops here so that others go first: its job goes back in line, and this try does not
    count. What it has recorded is there when it begins again."""


class JobContext:
    """One delivery of a job, in the hands of its handler.

    Everything the handler records goes through `write`, which refuses once the job has been taken over, stopped or has
    timed out: a worker that was thought dead cannot write over its successor.
    """

    def __init__(self, runtime: Runtime, job: Job, process_id: str) -> None:
        self.runtime = runtime
        self.job = job
        self.process_id = process_id
        self._over = threading.Event()
        self._yield = False
        self._next_glance = 0.0

    @property
    def ledger(self) -> Ledger:
        return self.runtime.ledger

    @property
    def payload(self) -> Any:
        return self.job.payload

    @property
    def run_id(self) -> int:
        if self.job.run_id is None:
            raise ValueError(f"job {self.job.id} ({self.job.kind}) belongs to no run")
        return self.job.run_id

    @property
    def stopping(self) -> bool:
        """Whether the handler should end now. An async handler is cancelled as well; a plain one must look here."""
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but not past a stop; whether the handler should end now. For plain handlers."""
        return self._over.wait(seconds)

    def should_yield(self) -> bool:
        """Whether this is background work and other work waits for its place. Looked up once a second at most."""
        if not self.job.background:
            return False
        if time.monotonic() >= self._next_glance:
            with self.ledger.read() as tx:
                self._yield = self.runtime.jobs.foreground_waits(tx)
            self._next_glance = time.monotonic() + _GLANCE_SECONDS
        return self._yield

    def give_way(self) -> None:
        """Raise `GaveWay` if other work waits for the place of this background job. For the moments between steps."""
        if self.should_yield():
            raise GaveWay(f"job {self.job.id} gave way to other work")

    @contextlib.contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that commits only while this delivery owns the job. Raises `Superseded` otherwise."""
        if self.stopping:
            raise Superseded(f"job {self.job.id} was stopped")
        request = self.job.request_id
        with self.ledger.write(actor=self.process_id, request_id=request) as tx:
            check_lease(tx, self.job)
            yield tx

    def end(self) -> None:
        """Tell the handler to end, and accept nothing more from it."""
        self._over.set()
