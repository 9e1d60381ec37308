"""What a handler is given."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ratchet.kernel import Superseded
from ratchet.ledger import Ledger, Transaction
from ratchet.runtime.job import Job
from ratchet.runtime.job_rows import check_owned

if TYPE_CHECKING:
    from ratchet.runtime.runtime import Runtime


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

    @contextlib.contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that commits only while this delivery owns the job. Raises `Superseded` otherwise."""
        if self.stopping:
            raise Superseded(f"job {self.job.id} was stopped")
        with self.ledger.write(actor=self.process_id, request_id=self.job.request_id) as tx:
            check_owned(tx, self.job)
            yield tx

    def end(self) -> None:
        """Tell the handler to end, and accept nothing more from it."""
        self._over.set()
