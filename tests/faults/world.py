"""One life: a real worker, and a client that asks for work and remembers what it was promised.

Everything that matters for the check is noted in the record: what was acknowledged, and when something was paid for.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from ratchet.config import Loaded, load_settings
from ratchet.engines import Capabilities, Failure, Readiness, Request, Session, SessionFailed
from ratchet.judges import Candidate, Judged
from ratchet.judges.judge import ruled
from ratchet.kernel import Conflict, LedgerUnavailable, Limits, Misuse, Outcome, RunStatus, Usage
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.events import EventFilter, since
from ratchet.ledger.projects import add_project, find_project
from ratchet.ledger.runs import get_run
from ratchet.ledger.tables import jobs, runs
from ratchet.ledger.usage import set_budget
from ratchet.loop import Attempted, GitTrunk, Plan, attempt, watched
from ratchet.runtime import (
    JobContext,
    JobStatus,
    Kinds,
    Runtime,
    Worker,
    cancel_run,
    complete_run,
    enter_run,
    open_ledger,
    open_runtime,
    pause_run,
    resume_run,
    run_step,
    start_run,
)
from ratchet.workspaces import Repository
from tests.faults.plan import Act

REF = "refs/heads/best"
REPOSITORY = "repo.git"
PROJECT = "mountain"
TOKENS = 10
SLOTS = 2
TRIES = 12
_LOOK_SECONDS = 0.02


def load(home: Path, url: str) -> Loaded:
    """Settings for lives that are short. An attempt has a limit, so that its share of the budget is held."""
    quick = {
        "runtime.heartbeat_seconds": 0.1,
        "runtime.dead_after_seconds": 0.5,
        "runtime.retry_base_seconds": 0.02,
        "runtime.retry_cap_seconds": 0.2,
        "runtime.poll_seconds": 0.05,
        "runtime.drain_seconds": 2,
        "runtime.slots": SLOTS,
        "runtime.max_recoveries": 50,
        "runtime.max_attempts": 10,
        "budgets.attempt.tokens": TOKENS,
    }
    return load_settings({"home": str(home), "database_url": url, **quick}, env={})


class Record(Protocol):
    """Where it is noted what was promised."""

    def note(self, text: str) -> None: ...


class PlannedFailure(Exception):
    """A try of a job that is to fail."""


class Climber:
    """An engine that raises the number in the file by one, for ten tokens."""

    name = "climber"
    capabilities = Capabilities(edits_files=True, reports_usage=True)

    def __init__(self, note: Callable[..., None], run_id: int) -> None:
        self._note = note
        self._run_id = run_id

    async def propose(self, request: Request) -> Session:
        if request.limits.tokens is not None and request.limits.tokens < TOKENS:
            raise SessionFailed(Failure.BUDGET, "too few tokens are left", session=Session(self.name))
        assert request.workspace is not None
        file = request.workspace / "number.txt"
        file.write_text(f"{int(file.read_text()) + 1}\n")
        # Paid for: whatever happens from here on, this session was used.
        self._note("paid", run=self._run_id)
        await asyncio.sleep(0)
        return Session(self.name, text="climbed", usage=Usage(input_tokens=TOKENS), transcript=b"{}\n")

    async def check(self) -> Readiness:
        return Readiness(True, "always")


class Height:
    """A judge: the number is the score."""

    name = "height"
    hash = "0" * 64

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note

    async def judge(self, candidate: Candidate) -> Judged:
        height = float((candidate.directory / "number.txt").read_text())
        self._note("judged", attempt=candidate.attempt_id)
        return ruled(self, Outcome.PASSED, "higher", score=height)


class World:
    """The work of a seed, in one process of one life."""

    def __init__(self, record: Record, home: Path, url: str, planted: str = "") -> None:
        self._record = record
        self._loaded = load(home, url)
        self._home = home
        self._planted = planted

    def note(self, what: str, **more: Any) -> None:
        self._record.note(json.dumps({"what": what, **more}))

    def live(self, acts: Sequence[Act], budget: int | None, *, last: bool) -> None:
        """Work until all is done; in the `last` life also what others left paused or blocked."""
        if self._planted == "unsynced":
            sa.event.listen(sa.Pool, "checkout", _wait_for_no_disk)
        with open_ledger(self._loaded) as ledger:
            runtime = open_runtime(self._loaded, ledger, self._kinds())
            worker = Worker(runtime)
            worker.start()
            try:
                client = Client(runtime, self.note, budget)
                for act in acts:
                    client.do(act)
                client.wait(resume=last)
            finally:
                worker.stop()

    def help(self) -> None:
        """Be a second worker, until killed."""
        with open_ledger(self._loaded) as ledger:
            worker = Worker(open_runtime(self._loaded, ledger, self._kinds()))
            worker.start()
            while True:
                time.sleep(60)

    def _kinds(self) -> Kinds:
        kinds = Kinds()
        for handler in (self.job, self.climb, self.steps):
            kinds.add(handler.__name__, handler)
        return kinds

    async def job(self, job: JobContext) -> Any:
        """Record each part once, whoever has begun it; then fail as often as planned."""
        act, parts = job.payload, []
        book = job.ledger if self._planted == "unfenced" else job
        for part in range(act["height"]):
            with book.write() as tx:
                done = [event.data["part"] for event in since(tx.connection, where=_worked(job))]
                if part not in done or self._planted == "unfenced":
                    said = {"part": part, "delivery": job.job.delivery}
                    tx.event("worked", job_id=job.job.id, data=said)
                    if act["bytes"]:
                        content = f"{act['name']} {part} ".encode() * act["bytes"]
                        ledger = job.ledger
                        ledger.artifacts.put(tx, content[: act["bytes"]], name=f"{act['name']}.{part}")
            self.note("worked", job=job.job.id, part=part, bytes=act["bytes"], name=act["name"])
            parts.append(part)
            await asyncio.sleep(0)
        if job.job.attempt <= act["fails"]:
            raise PlannedFailure(f"planned, in try {job.job.attempt}")
        return parts

    async def steps(self, job: JobContext) -> Any:
        with job.write() as tx:
            run = enter_run(tx, job.run_id)
        results = []
        for number in range(run.spec["height"]):

            async def work(attempt_id: int, number: int = number) -> int:
                self.note("stepped", run=job.run_id, step=number, attempt=attempt_id)
                await asyncio.sleep(0)
                return number

            results.append(await run_step(job, f"step-{number}", work))
            self.note("step done", run=job.run_id, step=number)
        with job.write() as tx:
            complete_run(tx, job.run_id, results)
        self.note("completed", run=job.run_id)

    async def climb(self, job: JobContext) -> Any:
        with job.write() as tx:
            run = enter_run(tx, job.run_id)
        repository = await asyncio.to_thread(Repository.open, self._home / REPOSITORY)
        try:
            with watched(lambda stage: self.note("stage", run=job.run_id, stage=stage)):
                ends = [
                    await self._climb_one(job, repository, number) for number in range(run.spec["height"])
                ]
        finally:
            repository.close()
        with job.write() as tx:
            complete_run(tx, job.run_id, [end.commit for end in ends])
        self.note("completed", run=job.run_id)

    async def _climb_one(self, job: JobContext, repository: Repository, number: int) -> Attempted:
        ended: Attempted | None = None
        for nth in range(1, TRIES + 1):
            base = await asyncio.to_thread(repository.resolve, REF)
            trunk = GitTrunk(
                repository=repository, base=base, ref=REF, message=f"Climb {number} of run {job.run_id}"
            )
            plan = Plan(
                trunk=trunk,
                engine=Climber(self.note, job.run_id),
                request=Request("climb"),
                judge=Height(self.note),
            )
            ended = await attempt(job, f"climb-{number}", plan, nth=nth)
            if ended.kept:
                self.note("kept", run=job.run_id, attempt=ended.attempt_id, commit=ended.commit)
                return ended
            if ended.failure is Failure.BUDGET:
                break
        assert ended is not None
        raise Misuse(f"climb {number} was not kept: {ended.reason}")


def _wait_for_no_disk(connection: Any, _record: Any, _lent: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def _worked(job: JobContext) -> EventFilter:
    return EventFilter(job_id=job.job.id, type="worked")


class Client:
    """Asks for work. What it was told is done it notes, and never asks for twice."""

    def __init__(self, runtime: Runtime, note: Callable[..., None], budget: int | None) -> None:
        self._runtime = runtime
        self._ledger = runtime.ledger
        self._note = note
        self._budget = budget
        self._resumed: set[int] = set()

    def do(self, act: Act) -> None:
        self._patiently(functools.partial(self._do, act))
        self._note("acted", act=act.name)

    def wait(self, *, resume: bool) -> None:
        """Until every job has ended and every run stands; with `resume`, until none is paused or blocked."""
        while not self._is_done(resume):
            time.sleep(_LOOK_SECONDS)

    def _patiently(self, work: Callable[[Transaction], Any]) -> Any:
        while True:
            try:
                with self._ledger.write(actor="client") as tx:
                    return work(tx)
            except (LedgerUnavailable, OSError):
                time.sleep(_LOOK_SECONDS)

    def _do(self, act: Act, tx: Transaction) -> None:
        acted = since(tx.connection, where=EventFilter(type="client.acted"))
        if act.name in [event.message for event in acted]:
            return
        done: dict[str, Any] = {}
        match act.do:
            case "job":
                payload = {name: getattr(act, name) for name in ("name", "height", "fails", "bytes")}
                done["job"] = self._runtime.enqueue(
                    tx, "job", payload, key=act.key, delay_seconds=act.delay_ms / 1000
                )
            case "climb" | "steps":
                spec = {"height": act.height}
                project = self._project(tx) if act.do == "climb" else None
                done["run"] = start_run(
                    tx, self._runtime, act.do, kind="research", name=act.name, spec=spec, project_id=project
                )
            case _:
                change = {"pause": pause_run, "resume": resume_run, "cancel": cancel_run}[act.do]
                try:
                    change(tx, self._runtime, _run_called(tx, act.name.partition(":")[2]))
                except Conflict as refused:
                    # It has ended before: that is an answer, too.
                    done["refused"] = str(refused)
        tx.event("client.acted", message=act.name, data=done)

    def _project(self, tx: Transaction) -> int:
        found = find_project(tx, PROJECT)
        if found is not None:
            return found.id
        number = add_project(tx, PROJECT)
        if self._budget is not None:
            set_budget(tx, "project", number, Limits(tokens=self._budget))
        return number

    def _is_done(self, resume: bool) -> bool:
        unended = [str(status) for status in JobStatus if not status.final]
        try:
            with self._ledger.read() as tx:
                if tx.connection.execute(sa.select(jobs.c.id).where(jobs.c.status.in_(unended))).first():
                    return False
                found = {run.id: RunStatus(run.status) for run in tx.connection.execute(sa.select(runs))}
        except (LedgerUnavailable, OSError):
            return False
        left = [run_id for run_id, status in found.items() if status in (RunStatus.PAUSED, RunStatus.BLOCKED)]
        for run_id in set(left) - self._resumed if resume else ():
            self._resumed.add(run_id)
            self._patiently(functools.partial(self._resume, run_id))
            return False
        return all(status.stands for status in found.values())

    def _resume(self, run_id: int, tx: Transaction) -> None:
        if get_run(tx, run_id).status in (RunStatus.PAUSED, RunStatus.BLOCKED):
            resume_run(tx, self._runtime, run_id, reason="the client resumed it")


def _run_called(tx: Transaction, name: str) -> int:
    return int(tx.connection.execute(sa.select(runs.c.id).where(runs.c.name == name)).scalar_one())


def make_home(home: Path, template: Path) -> None:
    """A home whose repository has its first commit; the tables come from the template."""
    repository = Repository.create(home / REPOSITORY)
    first = repository.commit_files({"number.txt": b"0\n"}, parent=None, message="Begin")
    repository.advance(REF, first, expected=None)
    repository.close()
    Ledger.open(f"sqlite:///{template}", home / "artifacts").close()
