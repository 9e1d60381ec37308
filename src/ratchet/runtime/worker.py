"""A worker: claims jobs, does them, records how each ended, and shows that it lives."""

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
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from ratchet.kernel import (
    BudgetExceeded,
    LedgerUnavailable,
    Misuse,
    Superseded,
    Waiting,
    exhausted,
    with_hint,
)
from ratchet.ledger import Topic, Transaction, open_ledger, to_json
from ratchet.observe import logs, metrics, tracing
from ratchet.runtime.heartbeat import Heartbeat
from ratchet.runtime.job import Job, JobStatus, stops_wanted
from ratchet.runtime.jobs import MAX_PAYLOAD_BYTES
from ratchet.runtime.processes import Complaint
from ratchet.runtime.resources import allow_descriptors, shortages
from ratchet.runtime.runtime import GaveWay, JobContext, open_runtime
from ratchet.runtime.schedules import fire, list_schedules
from ratchet.runtime.signals import StopSignals

if TYPE_CHECKING:
    import signal

    from ratchet.config import Loaded
    from ratchet.runtime.job import Job
    from ratchet.runtime.runtime import Companion, Handler, JobContext, Kinds, Runtime


# How long a cancelled handler may take to clean up before it is left behind.
GRACE_SECONDS = 10.0


class Why(Enum):
    """Why a running job is ended from outside."""

    STOPPED = "stopped"
    DRAINED = "drained"
    SUPERSEDED = "superseded"
    GAVE_WAY = "gave way"


class JobEnded(Exception):
    """The handler was ended from outside."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class TimedOut(Exception):
    """The handler took longer than its job may."""


class RunningJob:
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
                raise JobEnded(self._end.result())
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


@dataclass(frozen=True, slots=True)
class Starved:
    """The machine had no room for it. It has `used` it up itself if there is room as soon as it has ended."""

    reason: str
    used: bool = False


Outcome = Returned | Raised | Starved | JobEnded


class Execution:
    """Does jobs for one process, with a `run_id` only those of that run. What runs is in `running`, by job number."""

    def __init__(
        self,
        runtime: Runtime,
        process_id: str,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        run_id: int | None = None,
    ) -> None:
        self._runtime = runtime
        self._process_id = process_id
        self._loop = loop
        self._threads = threads
        self._run_id = run_id
        self.running: dict[int, RunningJob] = {}
        self.hurry = threading.Event()

    def do(self, job: Job, *, go_on: bool) -> tuple[Job | None, RunningJob]:
        """Do a started job. With `go_on`, recording its end also starts the next one that lies ready here."""
        metrics.job_wait_seconds.observe(max(0, (job.started_at or 0) - job.due_at) / 1000)
        began = time.monotonic()
        running = self.running[job.id] = RunningJob(
            JobContext(self._runtime, job, self._process_id, gives_way=self._run_id is None),
            self._loop,
            self._threads,
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

    def _run(self, job: Job, running: RunningJob) -> Outcome:
        try:
            kind = self._runtime.kinds.get(job.kind)
            timeout = job.timeout_ms / 1000 if job.timeout_ms else kind.timeout_seconds
            started = running.start(
                kind.handler, timeout or self._runtime.settings.runtime.job_timeout_seconds
            )
            result = started.result()
            _check_storable(result)
            return Returned(result)
        except JobEnded as ended:
            return ended
        except GaveWay:
            return JobEnded(Why.GAVE_WAY)
        except TimedOut as error:
            return Raised(str(error))
        except Waiting as waiting:
            return Returned({"waiting": str(waiting)})
        except CancelledError:
            return Raised("the handler cancelled itself")
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is recorded, not ours to judge
            if isinstance(error, LedgerUnavailable):
                return Starved(with_hint(error))
            if (lacking := exhausted(error)) is not None:
                used = not any(shortages(self._runtime.home))
                return Starved(f"out of {lacking}: {str(error) or type(error).__name__}", used)
            if isinstance(error, Misuse | BudgetExceeded):
                # Trying again would say the same, and where it was noticed tells a person nothing.
                return Raised(with_hint(error), final=True)
            return Raised(_error_report(error))

    def _record(self, tx: Transaction, job: Job, outcome: Outcome, go_on: bool) -> tuple[str, Job | None]:
        try:
            label = self._record_end(tx, job, outcome)
        except Superseded:
            _log.warning("job %s was taken over; its outcome here does not count", job.id)
            label = "superseded"
        if not go_on or self.hurry.is_set():
            return label, None
        return label, next(iter(self._runtime.jobs.claim(tx, self._process_id, 1, self._run_id)), None)

    def _record_end(self, tx: Transaction, job: Job, outcome: Outcome) -> str:
        jobs = self._runtime.jobs
        match outcome:
            case Returned(result):
                jobs.finish(tx, job, result)
                return "finished"
            case JobEnded(why=Why.STOPPED):
                jobs.stopped(tx, job)
                return "cancelled"
            case JobEnded(why=Why.GAVE_WAY):
                jobs.release(tx, job, "it gave way to work that comes first")
                return "released"
            case JobEnded():
                jobs.release(tx, job)
                return "released"
            case Starved(reason, used):
                _log.warning("job %s is put off: %s", job.id, reason)
                status = jobs.postpone(tx, job, reason[:_ERROR_LENGTH], bounded=used)
                return "failed" if status is JobStatus.FAILED else "retrying"
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


def _error_report(error: BaseException) -> str:
    """The error for people first, then where it came from."""
    # The first frames are the worker's own.
    where = "".join(traceback.format_tb(error.__traceback__)[3:][-4:])
    return f"{type(error).__name__}: {error}\n{where}"[:_ERROR_LENGTH]


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
                self._runtime.ledger.set_clock()
                pause = self.look(self._runtime.ledger.now_ms() / 1000)
                self._trouble.end()
            except LedgerUnavailable as error:
                pause = _LOOK_SECONDS
                self._trouble.make(error)
            except Exception:  # noqa: BLE001 - a clock continues: one bad schedule must not stop the others for ever
                pause = _LOOK_SECONDS
                _log.exception("a look at the schedules went wrong")


_log = logging.getLogger(__name__)
# Looked for even without a ring, so that one that was lost costs time and nothing else.
_STOPS_SECONDS = 2.0
_IN_OTHER_HANDS_SECONDS = 0.05


def work(
    loaded: Loaded,
    kinds: Kinds | None = None,
    *,
    signals: tuple[signal.Signals, ...] = (),
    started: Callable[[], None] | None = None,
) -> None:
    """Be a worker of the configured ledger until SIGTERM or SIGINT, or the first of `signals`, then drain.

    `started` is called once jobs are taken. Call it in the main thread.
    """
    tracing.configure(loaded.settings.tracing.enabled, loaded.settings.tracing.endpoint)
    with StopSignals(*signals) as told, open_ledger(loaded) as ledger:
        worker = Worker(open_runtime(loaded, ledger, kinds))
        worker.start()
        if started is not None:
            started()
        told.wait()
        worker.stop()
    tracing.shutdown()


class Worker:
    """Does jobs in `slots` places. Start it once, stop it once.

    With a `run_id` it does the jobs of that run and no others, and fires no schedules.
    """

    def __init__(
        self, runtime: Runtime, *, role: str = "worker", slots: int | None = None, run_id: int | None = None
    ) -> None:
        self.runtime = runtime
        self._run_id = run_id
        self.role = role
        self.slots = slots if slots is not None else runtime.settings.runtime.slots
        # One permit per place. A handler that was left behind keeps its place until it has really ended.
        self._free = threading.BoundedSemaphore(self.slots)
        self._loop = asyncio.new_event_loop()
        self._plain = ThreadPoolExecutor(self.slots, thread_name_prefix="ratchet-plain")
        self._places = ThreadPoolExecutor(self.slots, thread_name_prefix="ratchet-place")
        self._draining = threading.Event()
        self._stopped = threading.Event()
        self._lacks_thread = False
        self._jobs_rung = threading.Event()
        self._stops_rung = threading.Event()
        self._heartbeat = Heartbeat(
            runtime,
            role,
            self.slots,
            running=lambda: list(self._execution.running),
            lost=lambda: self._execution.end_all(Why.SUPERSEDED),
        )
        self._execution = Execution(runtime, self._heartbeat.process_id, self._loop, self._plain, run_id)
        self._companions: list[Companion] = []
        if run_id is None:
            self._companions = [
                Clock(runtime, self.process_id),
                *runtime.kinds.companions(runtime, self.process_id),
            ]
        self._claiming = threading.Thread(
            target=self._persist, args=(self._watch_jobs,), name="ratchet-jobs", daemon=True
        )
        self._others = [
            threading.Thread(target=self._run_loop, name="ratchet-loop", daemon=True),
            threading.Thread(
                target=self._persist, args=(self._watch_stops,), name="ratchet-stops", daemon=True
            ),
        ]

    @property
    def process_id(self) -> str:
        return self._heartbeat.process_id

    def start(self) -> None:
        """Enter the fleet and begin to claim jobs."""
        allow_descriptors()
        self.runtime.kinds.start(self.runtime)
        self.runtime.works_here = True
        self._heartbeat.start()
        for thread in (*self._others, self._claiming):
            thread.start()
        for each in self._companions:
            each.start()
        _log.info("%s %s takes jobs in %d slots", self.role, self.process_id, self.slots)

    def stop(self, drain_seconds: float | None = None) -> None:
        """Drain: take nothing new, let what runs finish for a while, give the rest back, and leave."""
        limit = self.runtime.settings.runtime.drain_seconds if drain_seconds is None else drain_seconds
        _log.info("%s %s drains", self.role, self.process_id)
        self.runtime.works_here = False
        self._draining.set()
        self._jobs_rung.set()
        for each in self._companions:
            each.stop()
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

    def _persist(self, watch: Callable[[], None]) -> None:
        """Begin to watch again where the machine had no thread to listen with: a worker that lives must not be deaf."""
        while True:
            try:
                watch()
                return
            except RuntimeError as error:
                _log.warning("waiting for a free thread: %s", error)
                self._draining.wait(_PATIENCE_SECONDS)

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
        if self._lacks_thread:
            # Those that were claimed hold their places, and perhaps all: no job that is claimed later would bring one.
            self._begin(bool)
        room = 0
        while room < self.slots and self._free.acquire(blocking=False):
            room += 1
        claimed: list[Job] = []
        pause = self.runtime.settings.runtime.poll_seconds
        try:
            look = self.runtime.jobs.look
            claimed, again_at = self._execution.patiently(
                lambda tx: look(tx, self.process_id, room, self._run_id)
            )
            if again_at is not None:
                ahead = (again_at - self.runtime.ledger.now_ms()) / 1000
                # What is due and still not claimed is in the hands of another this moment.
                pause = min(pause, ahead if ahead > 0 else _IN_OTHER_HANDS_SECONDS)
        except LedgerUnavailable as error:
            _log.warning("left before the database came back: %s", error)
        except Exception:  # noqa: BLE001 - a worker continues: it lives, so no other would take its place
            _log.exception("a look for jobs went wrong")
        finally:
            for _ in range(room - len(claimed)):
                self._free.release()
        for job in claimed:
            self._begin(functools.partial(self._work, job))
        return min(pause, _PATIENCE_SECONDS) if self._lacks_thread else pause

    def _begin(self, work: Callable[[], object]) -> None:
        """Without a thread for it now, it waits for the next one; the heartbeat gives its job back meanwhile."""
        try:
            self._places.submit(work)
            self._lacks_thread = False
        except RuntimeError as error:
            self._lacks_thread = True
            _log.warning("waiting for a free thread: %s", error)

    def _work(self, job: Job) -> None:
        """Do a job, then the next that lies ready, until there is none. Holds one place, and gives it back."""
        last: RunningJob | None = None
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
