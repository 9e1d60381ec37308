"""The runtime: jobs, queues and schedules on one ledger, opened as the settings say."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import LedgerUnavailable, Limits, Misuse, Superseded
from ratchet.ledger import Ledger
from ratchet.ledger.tables import jobs
from ratchet.runtime.job import DEFAULT_PRIORITY, DEFAULT_QUEUE, JobStatus, RetryPolicy, superseded
from ratchet.runtime.jobs import Jobs, configured_rules

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ratchet.config import Loaded, Settings
    from ratchet.ledger import Budgets, Ledger, Run, Transaction
    from ratchet.runtime.job import Job
    from ratchet.runtime.schedules import Missed


T = TypeVar("T")
# As which a row that must not be, and a value that does not fit, come out of a transaction.
_REFUSED = (exc.IntegrityError, Misuse)
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Wanted:
    work: Callable[[Transaction], Any]
    answer: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Failed:
    """`undone` if nothing of the transaction was written for certain."""

    error: Exception
    undone: bool


class Writes(Protocol):
    """Whose transactions they are: a job's, or a ledger's."""

    def write(self) -> AbstractContextManager[Transaction]: ...


class GroupCommit:
    """Shares the transactions of `book` among the tasks of one event loop, one transaction at a time.

    With `in_thread` they are written in a thread, and what comes meanwhile waits for the next one. A ledger that is
    unavailable is tried again so many `retries`: only for work that notices if it was written before.
    """

    def __init__(self, book: Writes, *, in_thread: bool = False, retries: int = 0) -> None:
        self._book = book
        self._in_thread = in_thread
        self._retries = retries
        self._waiting: list[_Wanted] = []
        self._writer: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many wait for the next transaction."""
        return len(self._waiting)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Do `work` in a transaction, as `Ledger.write` has it, with whatever others want to write just now.

        Raises what `work` does, and then nothing of it is written. It must change nothing but the transaction: when
        somebody else's work fails, nothing is written at first, and each is done again by itself. Who is cancelled
        while it waits may find it written or not.
        """
        return await self.add(work)

    def add(self, work: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """As `write`, without waiting. Work is done in the order in which it was added."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wanted(work, answer))
        self._start()
        return answer

    def close(self) -> None:
        """Write nothing more of what waits."""
        for each in self._waiting:
            each.answer.cancel()

    def _start(self) -> None:
        if self._waiting and (self._writer is None or self._writer.done()):
            self._writer = asyncio.get_running_loop().create_task(self._write_all())
            # Whatever it raises, those who came meanwhile have their turn.
            self._writer.add_done_callback(lambda _: self._start())

    async def _write_all(self) -> None:
        # After one more turn of the loop: whoever hears of something in it may have something to write as well.
        await asyncio.sleep(0)
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            wanted = [each for each in waiting if not each.answer.cancelled()]
            try:
                if wanted and not await self._written(wanted):
                    for each in wanted:
                        await self._written([each])
            finally:
                # Whatever has gone wrong here, nobody waits for ever.
                for each in wanted:
                    each.answer.cancel()

    async def _written(self, wanted: Sequence[_Wanted]) -> bool:
        """Write and answer. False if one of several has failed, so that nothing is written and nobody answered."""
        done = await self._committed(wanted)
        if isinstance(done, _Failed):
            # Of a commit that fails in another way nobody knows whether it was one: that is not done again.
            if done.undone and len(wanted) > 1:
                return False
            for each in wanted:
                if not each.answer.done():
                    each.answer.set_exception(done.error)
        else:
            for each, answer in zip(wanted, done, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)
        return True

    async def _committed(self, wanted: Sequence[_Wanted]) -> list[Any] | _Failed:
        for _ in range(self._retries):
            done = await self._tried(wanted)
            if not (isinstance(done, _Failed) and isinstance(done.error, LedgerUnavailable)):
                return done
            await asyncio.sleep(_RETRY_SECONDS)
        return await self._tried(wanted)

    async def _tried(self, wanted: Sequence[_Wanted]) -> list[Any] | _Failed:
        return await asyncio.to_thread(self._commit, wanted) if self._in_thread else self._commit(wanted)

    def _commit(self, wanted: Sequence[_Wanted]) -> list[Any] | _Failed:
        failed = False
        try:
            with self._book.write() as tx:
                try:
                    answers = [each.work(tx) for each in wanted]
                except Exception:
                    failed = True
                    raise
        except Exception as error:  # noqa: BLE001 - it is raised where the work was handed in
            return _Failed(error, undone=failed or isinstance(error, _REFUSED))
        return answers


# How long an answer about the others counts: it costs a look at the ledger.
_GLANCE_SECONDS = 1.0
# Built once: it runs for every write of a job, and building a statement takes longer than running it.
_LEASED = (
    sa.select(jobs.c.id)
    .where(
        jobs.c.id == sa.bindparam("job_id"),
        jobs.c.delivery == sa.bindparam("delivery"),
        jobs.c.status == str(JobStatus.STARTED),
    )
    .with_for_update()
)


class GaveWay(Exception):
    """Raised by a handler that stops here so that others go first: its job goes back to the queue, and this try does
    not count. What it has recorded is there when it begins again."""


class JobContext:
    """One delivery of a job, in the hands of its handler.

    Everything the handler records goes through `write`, which refuses once the job has been taken over, stopped or has
    timed out: a worker that was thought dead cannot write over its successor. `gives_way` is false where the place
    is of no use to others.
    """

    def __init__(self, runtime: Runtime, job: Job, process_id: str, *, gives_way: bool = True) -> None:
        self.runtime = runtime
        self.job = job
        self.process_id = process_id
        self._gives_way = gives_way
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
        if not self.job.background or not self._gives_way:
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
            held = {"job_id": self.job.id, "delivery": self.job.delivery}
            if tx.connection.execute(_LEASED, held).first() is None:
                raise superseded(self.job)
            yield tx

    def end(self) -> None:
        """Tell the handler to end, and accept nothing more from it."""
        self._over.set()


Handler = Callable[["JobContext"], Awaitable[Any]] | Callable[["JobContext"], Any]
RunAction = Callable[["Transaction", "Runtime", "Run", str], None]
ENTRY_POINTS = "ratchet.jobs"


@dataclass(frozen=True, slots=True)
class JobKind:
    """A handler may be `async` (preferred: it is cancelled when stopped) or plain (it runs in a thread and must look at
    `context.stopping` itself)."""

    name: str
    handler: Handler
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunActions:
    """How a flow pauses, resumes and cancels its runs, given the reason; None where it is as with every run.

    Callers use `pause_run`, `resume_run` and `cancel_run`, which find the kind of the run.
    """

    pause: RunAction | None = None
    resume: RunAction | None = None
    cancel: RunAction | None = None


class Companion(Protocol):
    """What runs beside a worker. `stop` returns once it has ended."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Kinds:
    """The kinds that a process knows."""

    def __init__(self, entries: Iterable[EntryPoint] = ()) -> None:
        self._kinds: dict[str, JobKind] = {}
        self._actions: dict[str, Callable[[Transaction, Run], RunActions]] = {}
        self._starts: list[Callable[[Runtime], None]] = []
        self._companions: list[Callable[[Runtime, str], Companion]] = []
        self._unloaded = list(entries)
        self._broken: list[Exception] = []

    @classmethod
    def installed(cls) -> Kinds:
        """Every kind of the installed packages: each entry point is a function that takes `Kinds` and adds to it."""
        from importlib.metadata import entry_points

        return cls(entry_points(group=ENTRY_POINTS))

    def _load(self, *, broken_too: bool = False) -> None:
        """Load the entry points, the first time. One that cannot be loaded is an error, unless `broken_too`."""
        while self._unloaded:
            try:
                self._unloaded.pop(0).load()(self)
            except Exception as error:  # noqa: BLE001  whatever a package of others raises
                self._broken.append(error)
        if self._broken and not broken_too:
            raise self._broken[0]

    def add(self, name: str, handler: Handler, *, timeout_seconds: float | None = None) -> None:
        if name in self._kinds:
            raise Misuse(f"job kind {name!r} is defined twice")
        self._kinds[name] = JobKind(name, handler, timeout_seconds)

    def add_run(self, kind: str, actions: Callable[[Transaction, Run], RunActions]) -> None:
        """Define how runs of a kind are paused, resumed and cancelled."""
        if kind in self._actions:
            raise Misuse(f"run kind {kind!r} is defined twice")
        self._actions[kind] = actions

    def of_run(self, tx: Transaction, run: Run) -> RunActions:
        """How a run is paused, resumed and cancelled. A broken package must not keep anyone from cancelling."""
        self._load(broken_too=True)
        found = self._actions.get(run.kind)
        return RunActions() if found is None else found(tx, run)

    def at_start(self, call: Callable[[Runtime], None]) -> None:
        """Have `call` called before a worker begins, to bring the ledger in line with the settings."""
        self._starts.append(call)

    def start(self, runtime: Runtime) -> None:
        self._load()
        for call in self._starts:
            call(runtime)

    def beside(self, make: Callable[[Runtime, str], Companion]) -> None:
        """Have what `make` makes run beside every worker that takes any job; it is given the name of the process."""
        self._companions.append(make)

    def companions(self, runtime: Runtime, process_id: str) -> list[Companion]:
        self._load()
        return [make(runtime, process_id) for make in self._companions]

    def get(self, name: str) -> JobKind:
        """The kind called `name`, or `Misuse` naming the nearest."""
        self._load()
        kind = self._kinds.get(name)
        if kind is None:
            near = difflib.get_close_matches(name, self._kinds, n=1)
            known = (
                f"did you mean {near[0]!r}?"
                if near
                else f"known kinds: {', '.join(sorted(self._kinds)) or 'none'}"
            )
            raise Misuse(f"there is no job kind {name!r}", hint=known)
        return kind


def open_runtime(loaded: Loaded, ledger: Ledger, kinds: Kinds | None = None) -> Runtime:
    """The runtime on `ledger`, with every installed kind of job unless others are given."""
    return Runtime(ledger, loaded.settings, Kinds.installed() if kinds is None else kinds)


def configured_budgets(settings: Settings) -> Budgets:
    from ratchet.ledger import Budgets

    scopes = settings.budgets
    attempt, run, project = (Limits(**dict(each)) for each in (scopes.attempt, scopes.run, scopes.project))
    return Budgets(scopes.policy, {"attempt": attempt, "run": run, "project": project})


class Runtime:
    """The door to durable work. One per process; cheap to open."""

    def __init__(self, ledger: Ledger, settings: Settings, kinds: Kinds) -> None:
        config = settings.runtime
        self.ledger = ledger
        self.settings = settings
        self.kinds = kinds
        self.rules = configured_rules(settings)
        self.jobs = Jobs(
            self.rules,
            kinds,
            RetryPolicy(
                max_attempts=config.max_attempts,
                base_seconds=config.retry_base_seconds,
                cap_seconds=config.retry_cap_seconds,
                max_recoveries=config.max_recoveries,
            ),
        )
        self.enqueue = self.jobs.enqueue
        # Whether this process takes jobs, or the worker beside it: what is not there for this one is not for that one.
        self.works_here = False
        # What layers above know of this process: the facts of its row by name, and how each is found.
        self.reports: dict[str, Callable[[], Any]] = {}

    @property
    def home(self) -> Path:
        """Ratchet's home, in which the artifacts lie."""
        return self.ledger.artifacts.root.parent

    def put_schedule(
        self,
        tx: Transaction,
        name: str,
        when: str,
        kind: str,
        payload: Any = None,
        *,
        timezone: str = "UTC",
        queue: str = DEFAULT_QUEUE,
        key: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        missed: Missed | str = "once",
    ) -> datetime:
        """Make or replace a schedule of jobs that can be enqueued; returns its first time. See `schedules`."""
        # Loaded here: to read what a person says about times takes more than all other work with jobs.
        from ratchet.runtime import schedules

        self.jobs.check_enqueuable(kind, queue, payload)
        return schedules.put_schedule(
            tx,
            name,
            when,
            kind,
            payload,
            timezone=timezone,
            queue=queue,
            key=key,
            priority=priority,
            missed=missed,
        )
