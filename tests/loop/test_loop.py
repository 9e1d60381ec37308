"""What one attempt does and records, on either database."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import Loaded
from ratchet.engines import (
    Capabilities,
    Engine,
    EventKind,
    Failure,
    Readiness,
    Request,
    Session,
    SessionEvent,
    SessionFailed,
)
from ratchet.judges import Candidate, Judge, Judged
from ratchet.judges.judge import ruled
from ratchet.kernel import BudgetExceeded, Limits, Misuse, Outcome, RunStatus, StepStatus, Usage
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger import events as log
from ratchet.ledger.artifacts import of_attempt
from ratchet.ledger.attention import spent
from ratchet.ledger.runs import get_attempt, get_run, latest_attempts, list_steps
from ratchet.ledger.usage import list_sessions, set_budget, total
from ratchet.loop import CHANGE_FILE, PROMPT_FILE, Attempted, GitTrunk, Plan, attempt
from ratchet.runtime import JobContext, Kinds, Runtime, Worker, cancel_run, enter_run, open_runtime, start_run
from ratchet.workspaces import Repository, WorkspaceKind
from tests.engines.fixed import FixedEngine
from tests.loop.flow import REF
from tests.waiting import eventually

Flow = Callable[[JobContext], Awaitable[Any]]


class Says:
    """A judge with a fixed opinion, which counts how often it is asked."""

    def __init__(self, outcome: Outcome, name: str = "says", score: float | None = None) -> None:
        self.outcome = outcome
        self.name = name
        self.hash = f"{name:0>64}"
        self.score = score
        self.asked = 0

    async def judge(self, candidate: Candidate) -> Judged:
        self.asked += 1
        assert (candidate.directory / "number.txt").exists()
        return ruled(self, self.outcome, f"it {self.outcome}", score=self.score)


class Broken:
    """A judge that breaks down."""

    name = "broken"
    hash = "b" * 64

    async def judge(self, candidate: Candidate) -> Judged:
        raise ZeroDivisionError("no numbers")


class Behaves:
    """An engine that does what a function says."""

    name = "behaves"
    capabilities = Capabilities(edits_files=True)

    def __init__(self, behaviour: Callable[[Request], Awaitable[Session]]) -> None:
        self.propose = behaviour

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def full_once(then: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """What finds no descriptor left the first time, and does as `then` after that."""
    left = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    async def called(*given: Any) -> Any:
        if left:
            raise left.pop()
        return await then(*given)

    return called


class Place:
    """A repository, a ledger and a worker that carries whatever flow a test gives it."""

    def __init__(self, loaded: Loaded, ledger: Ledger, repository: Repository) -> None:
        self.ledger = ledger
        self.repository = repository
        self.first = repository.resolve(REF)
        self.flow: Flow = self._nothing
        kinds = Kinds()
        kinds.add("flow", self._carry)
        self.runtime: Runtime = open_runtime(loaded, ledger, kinds)
        self.worker = Worker(self.runtime)
        self.worker.start()

    def close(self) -> None:
        self.worker.stop(drain_seconds=0)

    def start(self, flow: Flow, *, simulated: bool = False, limits: Limits | None = None) -> int:
        self.flow = flow
        with self.ledger.write() as tx:
            run_id = start_run(tx, self.runtime, "flow", kind="research", name="r", simulated=simulated)
            if limits is not None:
                set_budget(tx, "run", run_id, limits)
        return run_id

    def attempt(self, plan: Plan, **options: Any) -> Attempted:
        """One attempt in a run of its own."""
        ended: list[Attempted] = []

        async def flow(job: JobContext) -> None:
            ended.append(await attempt(job, "only", plan))

        self.start(flow, **options)
        eventually(lambda: bool(ended))
        return ended[0]

    def plan(self, engine: Engine | None = None, judge: Judge | None = None, **other: Any) -> Plan:
        return Plan(
            trunk=GitTrunk(
                repository=self.repository, base=self.first, ref=REF, message="Make it one", **other
            ),
            engine=engine or FixedEngine({"number.txt": "1\n"}, usage=Usage(input_tokens=7)),
            request=Request("make it one"),
            judge=judge or Says(Outcome.PASSED),
        )

    @property
    def best(self) -> str:
        return self.repository.resolve(REF)

    def status(self, run_id: int) -> RunStatus:
        with self.ledger.read() as tx:
            return get_run(tx, run_id).status

    async def _carry(self, job: JobContext) -> Any:
        with job.write() as tx:
            enter_run(tx, job.run_id)
        return await self.flow(job)

    async def _nothing(self, job: JobContext) -> None:
        raise AssertionError("no flow was given")


@pytest.fixture
def place(loaded: Loaded, ledger: Ledger, repository: Path) -> Iterator[Place]:
    opened = Repository.open(repository)
    made = Place(loaded, ledger, opened)
    yield made
    made.close()
    opened.close()


def test_a_change_that_passes_is_kept_and_everything_about_it_is_recorded(place: Place) -> None:
    ended = place.attempt(place.plan(judge=Says(Outcome.PASSED, score=2.5)))
    assert ended.kept
    assert place.best == ended.commit != place.first
    with place.ledger.read() as tx:
        row = get_attempt(tx, ended.attempt_id)
        [session] = list_sessions(tx, attempt_id=ended.attempt_id)
        [step] = list_steps(tx, row.run_id)
        assert total(tx, "run", row.run_id) == Usage(input_tokens=7, trials=1)
    assert (row.outcome, row.verdict["score"], step.status) == (Outcome.PASSED, 2.5, StepStatus.COMPLETED)
    assert session.transcript is not None
    assert b"number.txt" in place.ledger.artifacts.read(session.transcript)
    kept = _files(place, ended)
    assert (kept[PROMPT_FILE], b"+1\n" in kept[CHANGE_FILE]) == (b"make it one", True)


@pytest.mark.parametrize("who", ["engine", "judge"])
def test_an_attempt_that_finds_no_descriptors_continues_when_there_are_some(place: Place, who: str) -> None:
    engine, judge = FixedEngine({"number.txt": "1\n"}), Says(Outcome.PASSED)
    if who == "engine":
        plan = place.plan(engine=Behaves(full_once(engine.propose)))
    else:
        judge.judge = full_once(judge.judge)  # type: ignore[method-assign]
        plan = place.plan(engine=engine, judge=judge)
    ended = place.attempt(plan)
    assert (ended.outcome, place.best) == (Outcome.PASSED, ended.commit)
    with place.ledger.read() as tx:
        told = log.since(tx.connection, where=EventFilter(type="job.retrying"))
    assert [(event.message or "").partition(":")[0] for event in told] == [
        "out of open files of this process"
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ERROR])
def test_a_change_that_does_not_pass_is_discarded_but_stays_as_evidence(
    place: Place, outcome: Outcome
) -> None:
    ended = place.attempt(place.plan(judge=Says(outcome)))
    assert (ended.kept, ended.outcome, place.best) == (False, outcome, place.first)
    assert ended.commit is not None
    assert place.repository.ref(f"refs/ratchet/attempts/{ended.attempt_id}") == ended.commit


def test_an_attempt_that_another_ledger_has_counted_in_the_same_repository_stays_as_it_is(
    place: Place,
) -> None:
    other = "refs/ratchet/attempts/1"
    place.repository.advance(other, place.first, expected=None)
    ended = place.attempt(place.plan(judge=Says(Outcome.PASSED)))
    assert (ended.attempt_id, ended.kept, place.repository.ref(other)) == (1, True, place.first)
    assert place.repository.ref(f"{other}-{str(ended.commit)[:12]}") == ended.commit


def test_a_judge_that_breaks_down_keeps_nothing(place: Place) -> None:
    ended = place.attempt(place.plan(judge=Broken()))
    assert (ended.kept, ended.outcome) == (False, Outcome.ERROR)
    assert "no numbers" in ended.reason
    assert place.best == place.first


def test_a_session_that_changes_nothing_is_not_judged(place: Place) -> None:
    judge = Says(Outcome.PASSED)
    ended = place.attempt(place.plan(FixedEngine({}), judge))
    assert (ended.failure, ended.reason, judge.asked) == (
        Failure.BAD_OUTPUT,
        "the session changed nothing",
        0,
    )


def test_a_session_that_leaves_a_way_out_of_its_workspace_is_not_judged(place: Place) -> None:
    async def escape(request: Request) -> Session:
        assert request.workspace is not None
        (request.workspace / "out").symlink_to("/etc/passwd")
        return Session("behaves")

    judge = Says(Outcome.PASSED)
    ended = place.attempt(place.plan(Behaves(escape), judge))
    assert (ended.kept, ended.failure, judge.asked) == (False, Failure.BAD_OUTPUT, 0)
    assert "out" in ended.reason


def test_a_session_that_commits_by_itself_moves_no_ref(place: Place) -> None:
    async def help_itself(request: Request) -> Session:
        assert request.workspace is not None
        (request.workspace / "number.txt").write_text("9\n")
        for words in (("commit", "-qam", "mine"), ("update-ref", REF, "HEAD")):
            command = ["git", "-C", str(request.workspace), *words]
            environment = {**os.environ, **request.environment}
            await asyncio.to_thread(subprocess.run, command, env=environment, check=True)
        return Session("behaves")

    judge = Says(Outcome.PASSED)
    ended = place.attempt(place.plan(Behaves(help_itself), judge, kind=WorkspaceKind.WORKTREE))
    assert (ended.kept, ended.failure, judge.asked) == (False, Failure.BAD_OUTPUT, 0)
    assert place.best == place.first


def test_a_session_that_fails_is_charged_and_named(place: Place) -> None:
    async def fail(request: Request) -> Session:
        partly = Session("behaves", usage=Usage(output_tokens=9), transcript=b'{"kind":"note"}\n')
        raise SessionFailed(Failure.REFUSED, "the endpoint said no", session=partly)

    ended = place.attempt(place.plan(Behaves(fail)))
    assert (ended.kept, ended.failure, ended.reason) == (False, Failure.REFUSED, "the endpoint said no")
    with place.ledger.read() as tx:
        row = get_attempt(tx, ended.attempt_id)
        [session] = list_sessions(tx, attempt_id=ended.attempt_id)
        assert total(tx, "run", row.run_id).output_tokens == 9
    assert (session.failure, row.outcome) == ("refused", Outcome.ERROR)
    kept = _files(place, ended)
    assert (kept[PROMPT_FILE], CHANGE_FILE in kept) == (b"make it one", False)


def test_an_engine_that_breaks_down_is_a_crash_and_no_success(place: Place) -> None:
    async def burst(request: Request) -> Session:
        raise RuntimeError("burst")

    ended = place.attempt(place.plan(Behaves(burst)))
    assert (ended.kept, ended.failure) == (False, Failure.CRASHED)
    assert "burst" in ended.reason


def test_a_ref_that_moved_meanwhile_is_not_overwritten(place: Place) -> None:
    other = place.repository.commit_files({"other.txt": b"x"}, parent=place.first, message="Other")

    async def late(request: Request) -> Session:
        place.repository.advance(REF, other, expected=place.first)
        return await FixedEngine({"number.txt": "1\n"}).propose(request)

    ended = place.attempt(place.plan(Behaves(late)))
    assert (ended.kept, ended.outcome, place.best) == (False, Outcome.FAILED, other)
    assert ended.verdict is not None
    assert ended.verdict.passed


@pytest.mark.parametrize("simulated", [False, True])
def test_a_recording_moves_a_ref_only_in_a_run_that_is_a_simulation(place: Place, simulated: bool) -> None:
    async def recorded(request: Request) -> Session:
        return replace(await FixedEngine({"number.txt": "1\n"}).propose(request), simulated=True)

    ended = place.attempt(place.plan(Behaves(recorded)), simulated=simulated)
    assert ended.kept is simulated
    with place.ledger.read() as tx:
        row = get_attempt(tx, ended.attempt_id)
        assert (row.simulated, get_run(tx, row.run_id).used_recording) == (True, True)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_recorded_verdict_moves_a_ref_only_in_a_run_that_is_a_simulation(
    place: Place, simulated: bool
) -> None:
    class Recorded(Says):
        async def judge(self, candidate: Candidate) -> Judged:
            said = Session("replay:reviewer", text="pass", simulated=True)
            return ruled(self, Outcome.PASSED, "it passed", sessions=(said,))

    ended = place.attempt(place.plan(judge=Recorded(Outcome.PASSED)), simulated=simulated)
    assert (ended.kept, place.best != place.first) == (simulated, simulated)
    with place.ledger.read() as tx:
        assert get_run(tx, get_attempt(tx, ended.attempt_id).run_id).used_recording


def test_what_a_review_uses_is_charged_to_the_engine_and_the_model_that_reviewed(place: Place) -> None:
    class Reviewed(Says):
        async def judge(self, candidate: Candidate) -> Judged:
            said = Session("codex", "gpt-5.5", text="pass", usage=Usage(input_tokens=20))
            return ruled(self, Outcome.PASSED, "it passed", sessions=(said,))

    place.attempt(place.plan(judge=Reviewed(Outcome.PASSED)))
    with place.ledger.read() as tx:
        paid = {each.key for each in spent(tx, "engine", since=0) if each.usage.tokens}
    assert paid == {("fixed", ""), ("codex", "gpt-5.5")}


def test_what_a_session_says_and_uses_is_in_the_ledger_while_it_runs(place: Place) -> None:
    go_on = asyncio.Event()

    async def talk(request: Request) -> Session:
        request.listen(SessionEvent(EventKind.MESSAGE, "thinking"))
        request.listen(SessionEvent(EventKind.USAGE, data={"input_tokens": 30}))
        await go_on.wait()
        return await FixedEngine({"number.txt": "1\n"}, usage=Usage(input_tokens=50)).propose(request)

    ended: list[Attempted] = []

    async def flow(job: JobContext) -> None:
        watcher = asyncio.create_task(asyncio.to_thread(watch, job.run_id))
        watcher.add_done_callback(lambda _: go_on.set())
        ended.append(await attempt(job, "only", place.plan(Behaves(talk))))
        await watcher

    def watch(run_id: int) -> None:
        eventually(lambda: heard(run_id) == ["thinking"] and used(run_id) == 30)

    def heard(run_id: int) -> list[str | None]:
        with place.ledger.read() as tx:
            found = log.since(tx.connection, where=EventFilter(run_id=run_id, type="session.message"))
        return [event.message for event in found]

    def used(run_id: int) -> int:
        with place.ledger.read() as tx:
            return total(tx, "run", run_id).input_tokens

    run_id = place.start(flow)
    eventually(lambda: bool(ended))
    assert ended[0].kept
    assert used(run_id) == 50


def test_nothing_is_started_when_the_budget_is_used_up(place: Place) -> None:
    raised: list[BudgetExceeded] = []

    async def flow(job: JobContext) -> None:
        await attempt(job, "first", place.plan())
        try:
            await attempt(job, "second", place.plan())
        except BudgetExceeded as error:
            raised.append(error)

    run_id = place.start(flow, limits=Limits(tokens=7))
    eventually(lambda: bool(raised))
    with place.ledger.read() as tx:
        assert len(list_sessions(tx, run_id=run_id)) == 1


def test_an_engine_is_told_what_is_left_of_the_budget(place: Place) -> None:
    told: list[Limits] = []

    async def listen(request: Request) -> Session:
        told.append(request.limits)
        return await FixedEngine({"number.txt": "1\n"}).propose(request)

    place.attempt(place.plan(Behaves(listen)), limits=Limits(tokens=100, cost_usd=2.0))
    assert told == [Limits(tokens=100, cost_usd=2.0)]


@pytest.mark.parametrize(("asked", "given"), [(5.0, 5.0), (1e6, 1800.0)])
def test_no_session_gets_more_time_than_the_settings_allow(place: Place, asked: float, given: float) -> None:
    told: list[float] = []

    async def listen(request: Request) -> Session:
        told.append(request.deadline_seconds)
        return await FixedEngine({"number.txt": "1\n"}).propose(request)

    plan = place.plan(Behaves(listen))
    place.attempt(replace(plan, request=replace(plan.request, deadline_seconds=asked)))
    assert told == [pytest.approx(given, abs=1)]


def test_a_request_that_the_engine_can_never_serve_ends_the_attempt_and_is_told(place: Place) -> None:
    async def refuse(request: Request) -> Session:
        raise Misuse("not with me")

    async def flow(job: JobContext) -> None:
        await attempt(job, "only", place.plan(Behaves(refuse)))

    run_id = place.start(flow)
    eventually(lambda: _steps(place, run_id) == [StepStatus.FAILED])
    with place.ledger.read() as tx:
        [step] = list_steps(tx, run_id)
        [only] = latest_attempts(tx, step.id)
    assert (only.outcome, only.reason) == (Outcome.ERROR, "Misuse: not with me")


def test_an_attempt_that_ended_is_only_remembered_and_the_next_one_is_new(place: Place) -> None:
    judge = Says(Outcome.FAILED)
    ends: list[Attempted] = []

    async def flow(job: JobContext) -> None:
        ends.extend([await attempt(job, "only", place.plan(judge=judge), nth=nth) for nth in (1, 2, 1, 2)])

    place.start(flow)
    eventually(lambda: len(ends) == 4)
    assert ends[0] == ends[2] != ends[1] == ends[3]
    assert judge.asked == 2


def test_cancelling_a_run_ends_its_session_and_charges_what_it_used(place: Place) -> None:
    events: list[str] = []

    async def endless(request: Request) -> Session:
        request.listen(SessionEvent(EventKind.USAGE, data={"output_tokens": 4}))
        events.append(str(request.workspace))
        try:
            await asyncio.sleep(60)
        finally:
            events.append("ended")
        raise AssertionError

    async def flow(job: JobContext) -> None:
        await attempt(job, "only", place.plan(Behaves(endless)))

    run_id = place.start(flow)
    eventually(lambda: bool(events))
    with place.ledger.write() as tx:
        cancel_run(tx, place.runtime, run_id)
    eventually(lambda: "ended" in events and not Path(events[0]).exists())
    with place.ledger.read() as tx:
        assert total(tx, "run", run_id).output_tokens == 4
    assert place.status(run_id) is RunStatus.CANCELLED


def _files(place: Place, ended: Attempted) -> dict[str, bytes]:
    with place.ledger.read() as tx:
        found = of_attempt(tx, ended.attempt_id)
    return {each.name: place.ledger.artifacts.read(each.sha256) for each in found}


def _steps(place: Place, run_id: int) -> list[StepStatus]:
    with place.ledger.read() as tx:
        return [step.status for step in list_steps(tx, run_id)]
