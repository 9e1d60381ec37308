"""The judge that asks a person, and the run that waits for the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import Loaded
from ratchet.judges import AwaitingApproval, Candidate, PersonJudge, first_failure, hear
from ratchet.kernel import Conflict, Outcome, RunStatus, Superseded
from ratchet.ledger import Ledger, change_run
from ratchet.ledger.approvals import ApprovalStatus, get_approval, list_approvals, still_pending
from ratchet.ledger.runs import create_run, get_run
from ratchet.runtime import (
    JobContext,
    Kinds,
    Runtime,
    Worker,
    cancel_run,
    complete_run,
    enter_run,
    list_jobs,
    open_runtime,
    pause_run,
    resume_run,
    start_run,
)
from ratchet.runtime.approvals import decide
from tests.judges.conftest import ask
from tests.judges.test_combined import Fixed
from tests.runtime.conftest import (  # noqa: F401
    ledger,
    loaded,
    url,
)
from tests.waiting import eventually


def candidate_of(*, diff: str = "+1\n", **known: Any) -> Candidate:
    known = {"author": "codex", "read_diff": lambda: diff, **known}
    return Candidate("c" * 40, "b" * 40, Path("/nowhere"), **known)


Hook = Callable[[Runtime, int], None]


def waiting(hooks: list[Hook]) -> Any:
    """A run that asks a person and blocks, as the loop does. What is to happen just before it blocks is in `hooks`."""

    async def waits(job: JobContext) -> Any:
        with job.write() as tx:
            enter_run(tx, job.run_id)
        while True:
            try:
                judge = PersonJudge(question="Ship it?", write=job.write)
                verdict = (await hear(judge, candidate_of(run_id=job.run_id))).verdict
            except AwaitingApproval as waiting:
                for hook in hooks:
                    hook(job.runtime, waiting.approval_id)
                with job.write() as tx:
                    if still_pending(tx, waiting.approval_id):
                        change_run(tx, job.run_id, RunStatus.BLOCKED, reason=str(waiting))
                        return "waiting"
            else:
                with job.write() as tx:
                    complete_run(tx, job.run_id, {"reason": verdict.reason, "outcome": verdict.outcome})
                return "done"

    return waits


@pytest.fixture
def hooks() -> list[Hook]:
    return []


@pytest.fixture
def runtime(loaded: Loaded, ledger: Ledger, hooks: list[Hook]) -> Runtime:  # noqa: F811
    kinds = Kinds()
    kinds.add("waits", waiting(hooks))
    return open_runtime(loaded, ledger, kinds)


@pytest.fixture
def worker(runtime: Runtime) -> Iterator[Worker]:
    started = Worker(runtime)
    started.start()
    yield started
    started.stop(drain_seconds=0)


def person(ledger: Ledger, question: str = "Ship it?") -> PersonJudge:  # noqa: F811
    return PersonJudge(question=question, write=ledger.write)


def pending_id(judge: PersonJudge, candidate: Candidate) -> int:
    with pytest.raises(AwaitingApproval) as waiting:
        ask(judge, candidate)
    return waiting.value.approval_id


def answer(runtime: Runtime, approval_id: int, approved: bool = True, comment: str | None = None) -> None:
    with runtime.ledger.write() as tx:
        decide(tx, runtime, approval_id, approved=approved, by="ada", comment=comment)


def begin(runtime: Runtime) -> int:
    with runtime.ledger.write() as tx:
        return start_run(tx, runtime, "waits", kind="workflow", name="w")


def is_run(ledger: Ledger, run_id: int, status: RunStatus) -> Callable[[], bool]:  # noqa: F811
    def check() -> bool:
        with ledger.read() as tx:
            return get_run(tx, run_id).status is status

    return check


def test_the_same_question_waits_for_one_answer(ledger: Ledger) -> None:  # noqa: F811
    first = pending_id(person(ledger), candidate_of())
    assert pending_id(person(ledger), candidate_of()) == first
    others = {
        pending_id(person(ledger), candidate_of(attempt_id=None, run_id=None, author="x", diff="y")),
        pending_id(person(ledger, "Really?"), candidate_of()),
        pending_id(person(ledger), Candidate("d" * 40, "b" * 40, Path("/nowhere"), "codex")),
    }
    assert len(others - {first}) == 2


@pytest.mark.parametrize(("approved", "outcome"), [(True, Outcome.PASSED), (False, Outcome.FAILED)])
def test_the_answer_is_the_verdict(runtime: Runtime, approved: bool, outcome: Outcome) -> None:
    judge = person(runtime.ledger)
    approval_id = pending_id(judge, candidate_of())
    answer(runtime, approval_id, approved, "because")
    judged = ask(judge, candidate_of())
    assert judged.verdict.outcome is outcome
    assert judged.verdict.reason.endswith("by ada: because")
    report = json.loads(judged.reports[0].content)
    assert (report["id"], report["decided_by"], report["comment"]) == (approval_id, "ada", "because")
    assert report["decided_at"] >= report["created_at"]
    assert judged.verdict.judge_hash == judge.hash


def test_the_person_sees_the_change_and_what_others_said(ledger: Ledger) -> None:  # noqa: F811
    with pytest.raises(AwaitingApproval) as waiting:
        ask(first_failure(Fixed("tests"), person(ledger)), candidate_of(diff="+x" * 50_000, prompt="do it"))
    with ledger.read() as tx:
        shown = get_approval(tx, waiting.value.approval_id).data
    assert shown["verdicts"] == [{"judge": "tests", "outcome": "passed", "reason": "tests says passed"}]
    assert (shown["prompt"], shown["author"]) == ("do it", "codex")
    assert shown["diff"].endswith("(80000 more characters)")


@pytest.mark.soak
def test_a_run_waits_without_a_worker_and_goes_on_when_it_is_answered(
    runtime: Runtime, worker: Worker
) -> None:
    run_id = begin(runtime)
    eventually(is_run(runtime.ledger, run_id, RunStatus.BLOCKED))
    with runtime.ledger.read() as tx:
        [approval] = list_approvals(tx, run_id=run_id)
        assert get_run(tx, run_id).reason == f"approval {approval.id} is pending"
    eventually(lambda: all(job.status.final for job in _jobs(runtime, run_id)))
    answer(runtime, approval.id, comment="go")
    eventually(is_run(runtime.ledger, run_id, RunStatus.COMPLETED))
    with runtime.ledger.read() as tx:
        assert get_run(tx, run_id).result == {"reason": "approved by ada: go", "outcome": "passed"}
        assert len(list_approvals(tx, run_id=run_id)) == 1


@pytest.mark.soak
def test_an_answer_that_comes_before_the_run_is_blocked_is_not_lost(
    runtime: Runtime, worker: Worker, hooks: list[Hook]
) -> None:
    hooks.append(answer)
    run_id = begin(runtime)
    eventually(is_run(runtime.ledger, run_id, RunStatus.COMPLETED))


def test_a_second_answer_is_refused_and_wakes_nobody(runtime: Runtime) -> None:
    run_id = _blocked(runtime)
    approval_id = pending_id(person(runtime.ledger), candidate_of(run_id=run_id))
    answer(runtime, approval_id)
    with pytest.raises(Conflict, match="is approved by ada"):
        answer(runtime, approval_id, approved=False)
    assert len(_jobs(runtime, run_id)) == 2


def test_a_paused_run_stays_paused_and_finds_the_answer_later(runtime: Runtime) -> None:
    run_id = _blocked(runtime)
    approval_id = pending_id(person(runtime.ledger), candidate_of(run_id=run_id))
    with runtime.ledger.write() as tx:
        pause_run(tx, runtime, run_id)
    answer(runtime, approval_id)
    assert is_run(runtime.ledger, run_id, RunStatus.PAUSED)()
    with runtime.ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    assert ask(person(runtime.ledger), candidate_of(run_id=run_id)).verdict.passed


def test_the_approval_of_a_cancelled_run_is_closed(runtime: Runtime) -> None:
    run_id = _blocked(runtime)
    judge = person(runtime.ledger)
    approval_id = pending_id(judge, candidate_of(run_id=run_id))
    with runtime.ledger.write() as tx:
        cancel_run(tx, runtime, run_id)
        assert get_approval(tx, approval_id).status is ApprovalStatus.CLOSED
    with pytest.raises(Conflict, match="is closed"):
        answer(runtime, approval_id)
    assert is_run(runtime.ledger, run_id, RunStatus.CANCELLED)()
    assert ask(judge, candidate_of(run_id=run_id)).verdict.outcome is Outcome.ERROR


def test_a_run_that_was_never_started_as_work_is_answered_and_not_resumed(runtime: Runtime) -> None:
    with runtime.ledger.write() as tx:
        run_id = create_run(tx, "workflow", "by hand")
        change_run(tx, run_id, RunStatus.BLOCKED)
    approval_id = pending_id(person(runtime.ledger), candidate_of(run_id=run_id))
    answer(runtime, approval_id)
    assert is_run(runtime.ledger, run_id, RunStatus.BLOCKED)()


def test_a_judge_whose_job_was_taken_over_asks_nobody(ledger: Ledger) -> None:  # noqa: F811
    def refusing() -> Any:
        raise Superseded("job 1 was taken over")

    with pytest.raises(Superseded):
        ask(PersonJudge(question="Ship it?", write=refusing), candidate_of())


def test_the_question_is_in_the_hash(ledger: Ledger) -> None:  # noqa: F811
    assert person(ledger).hash == person(ledger).hash != person(ledger, "Really?").hash


def _blocked(runtime: Runtime) -> int:
    run_id = begin(runtime)
    with runtime.ledger.write() as tx:
        change_run(tx, run_id, RunStatus.RUNNING)
        change_run(tx, run_id, RunStatus.BLOCKED)
    return run_id


def _jobs(runtime: Runtime, run_id: int) -> list[Any]:
    with runtime.ledger.read() as tx:
        return list_jobs(tx, run_id=run_id)
