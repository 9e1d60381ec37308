"""Doing one job: open it, run its handler, record how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from ratchet.kernel import BudgetExceeded, LedgerUnavailable, Misuse, Superseded, Waiting, with_hint
from ratchet.ledger import Transaction, to_json
from ratchet.observe import logs, metrics, tracing
from ratchet.runtime.complaint import Complaint
from ratchet.runtime.context import GaveWay, JobContext
from ratchet.runtime.job import Job, JobStatus
from ratchet.runtime.jobs import MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from ratchet.runtime.context import JobContext
    from ratchet.runtime.kinds import Handler
    from ratchet.runtime.runtime import Runtime


# How long a cancelled handler may take to clean up before it is left behind.
GRACE_SECONDS = 10.0


class Why(Enum):
    """Why a running job is ended from outside."""

    STOPPED = "stopped"
    DRAINED = "drained"
    SUPERSEDED = "superseded"
    GAVE_WAY = "gave way"


class Ended(Exception):
    """The handler was ended from outside."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class TimedOut(Exception):
    """The handler took longer than its job may."""


class Running:
    """A handler at work on the worker's event loop. `end` may be called from any thread, once or more."""

    def __init__(self, context: JobContext, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self.context = context
        self._loop = loop
        self._threads = threads
        self._end: asyncio.Future[Why] = loop.create_future()
        self._work: asyncio.Future[Any] | None = None

    def start(self, handler: Handler, timeout_seconds: float | None) -> Future[Any]:
        """Begin. The future holds the handler's result, or raises its error, `Ended` or `TimedOut`."""
        return asyncio.run_coroutine_threadsafe(self._supervise(handler, timeout_seconds), self._loop)

    def end(self, why: Why) -> None:
        def resolve() -> None:
            if not self._end.done():
                self._end.set_result(why)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
            self._loop.call_soon_threadsafe(resolve)

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call once the handler has really returned, which may be after its job ended."""
        work = self._work
        if work is None or work.done():
            call()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the worker with it
                self._loop.call_soon_threadsafe(work.add_done_callback, lambda _: call())

    async def _supervise(self, handler: Handler, timeout_seconds: float | None) -> Any:
        job = self.context.job
        with (
            logs.bind(job_id=job.id, run_id=job.run_id, request_id=job.request_id),
            tracing.span("job", kind=job.kind, attempt=job.attempt),
        ):
            self._work = asyncio.ensure_future(self._call(handler))
            await asyncio.wait(
                {self._work, self._end}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if self._work.done():
                return self._work.result()
            self.context.end()
            self._work.cancel()
            await asyncio.wait({self._work}, timeout=GRACE_SECONDS)
            if self._work.done() and not self._work.cancelled():
                self._work.exception()  # looked at, so that it is not reported as forgotten
            if self._end.done():
                raise Ended(self._end.result())
            raise TimedOut(f"it took longer than {timeout_seconds:g} s")

    async def _call(self, handler: Handler) -> Any:
        try:
            if inspect.iscoroutinefunction(handler):
                return await handler(self.context)
            plain = functools.partial(contextvars.copy_context().run, handler, self.context)
            # Shielded: a thread cannot be cancelled, so `when_gone` must wait for its real end.
            return await asyncio.shield(self._loop.run_in_executor(self._threads, plain))
        except (SystemExit, KeyboardInterrupt) as error:
            # Let through, it would end the loop and with it every other job of this worker.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error


_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_PATIENCE_SECONDS = 1.0
_ERROR_LENGTH = 4000


@dataclass(frozen=True, slots=True)
class Returned:
    result: Any


@dataclass(frozen=True, slots=True)
class Raised:
    error: str
    final: bool = False


Outcome = Returned | Raised | Ended


class Execution:
    """Does jobs for one process. What runs is in `running`, by job number."""

    def __init__(
        self, runtime: Runtime, process_id: str, loop: asyncio.AbstractEventLoop, threads: Executor
    ) -> None:
        self._runtime = runtime
        self._process_id = process_id
        self._loop = loop
        self._threads = threads
        self.running: dict[int, Running] = {}
        self.hurry = threading.Event()

    def do(self, job: Job, *, go_on: bool) -> tuple[Job | None, Running]:
        """Do a started job. With `go_on`, recording its end also starts the next one that lies ready here."""
        metrics.job_wait_seconds.observe(max(0, (job.started_at or 0) - job.due_at) / 1000)
        began = time.monotonic()
        running = self.running[job.id] = Running(
            JobContext(self._runtime, job, self._process_id), self._loop, self._threads
        )
        if self.hurry.is_set():
            running.end(Why.DRAINED)
        try:
            outcome = self._run(job, running)
            label, following = self.patiently(lambda tx: self._record(tx, job, outcome, go_on))
        finally:
            del self.running[job.id]
        metrics.jobs_finished.labels(kind=job.kind, outcome=label).inc()
        metrics.job_seconds.labels(kind=job.kind).observe(time.monotonic() - began)
        return following, running

    def end_all(self, why: Why) -> None:
        for running in list(self.running.values()):
            running.end(why)

    def patiently(self, work: Callable[[Transaction], _T]) -> _T:
        """Do `work` in a transaction; while the database is away, wait for it to come back."""
        trouble = Complaint(_log, "waiting for the database", "the database is back")
        while True:
            try:
                with self._runtime.ledger.write(actor=self._process_id) as tx:
                    done = work(tx)
                trouble.end()
                return done
            except LedgerUnavailable as error:
                if self.hurry.wait(_PATIENCE_SECONDS):
                    raise
                trouble.make(error)

    def _run(self, job: Job, running: Running) -> Outcome:
        try:
            kind = self._runtime.kinds.get(job.kind)
            timeout = job.timeout_ms / 1000 if job.timeout_ms else kind.timeout_seconds
            started = running.start(
                kind.handler, timeout or self._runtime.settings.runtime.job_timeout_seconds
            )
            result = started.result()
            _check_storable(result)
            return Returned(result)
        except Ended as ended:
            return ended
        except GaveWay:
            return Ended(Why.GAVE_WAY)
        except TimedOut as error:
            return Raised(str(error))
        except Waiting as waiting:
            return Returned({"waiting": str(waiting)})
        except (Misuse, BudgetExceeded) as error:
            # Trying again would say the same, and where it was noticed tells a person nothing.
            return Raised(with_hint(error), final=True)
        except CancelledError:
            return Raised("the handler cancelled itself")
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is recorded, not ours to judge
            return Raised(_told(error))

    def _record(self, tx: Transaction, job: Job, outcome: Outcome, go_on: bool) -> tuple[str, Job | None]:
        try:
            label = self._record_end(tx, job, outcome)
        except Superseded:
            _log.warning("job %s was taken over; its outcome here does not count", job.id)
            label = "superseded"
        if not go_on or self.hurry.is_set():
            return label, None
        return label, next(iter(self._runtime.jobs.claim(tx, self._process_id, 1)), None)

    def _record_end(self, tx: Transaction, job: Job, outcome: Outcome) -> str:
        jobs = self._runtime.jobs
        match outcome:
            case Returned(result):
                jobs.finish(tx, job, result)
                return "finished"
            case Ended(why=Why.STOPPED):
                jobs.stopped(tx, job)
                return "cancelled"
            case Ended(why=Why.GAVE_WAY):
                jobs.release(tx, job, "it gave way to work that comes first")
                return "released"
            case Ended():
                jobs.release(tx, job)
                return "released"
            case Raised(error, final):
                status = jobs.fail(tx, job, error, final=final)
                return "failed" if status is JobStatus.FAILED else "retrying"


def _check_storable(result: Any) -> None:
    size = len(to_json(result))
    if size > MAX_PAYLOAD_BYTES:
        raise Misuse(
            f"the job's result of {size} bytes is too large to store (at most {MAX_PAYLOAD_BYTES})",
            hint="keep it as an artifact and return its hash",
        )


def _told(error: BaseException) -> str:
    """The error for people first, then where it came from."""
    # The first frames are the worker's own.
    where = "".join(traceback.format_tb(error.__traceback__)[3:][-4:])
    return f"{type(error).__name__}: {error}\n{where}"[:_ERROR_LENGTH]
