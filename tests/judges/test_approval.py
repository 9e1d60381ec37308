"""A run that waits for a person's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ratchet.config import Loaded
from ratchet.kernel import Conflict, RunStatus
from ratchet.ledger import Ledger, Transaction, change_run
from ratchet.ledger.questions import (
    Approval,
    ApprovalStatus,
    get_approval,
    list_approvals,
    request_approval,
    still_pending,
)
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
from ratchet.runtime.runs import answer_approval
from tests.runtime.conftest import (  # noqa: F401
    ledger,
    loaded,
    url,
)
from tests.waiting import eventually

Hook = Callable[[Runtime, int], None]


def request(tx: Transaction, run_id: int | None = None) -> Approval:
    """The one question of a run."""
    return request_approval(
        tx, f"run {run_id}", subject="a change", question="Ship it?", data={}, run_id=run_id
    )


def waiting(hooks: list[Hook]) -> Any:
    """A run that asks a person and blocks. What is to happen just before it blocks is in `hooks`."""

    async def waits(job: JobContext) -> Any:
        with job.write() as tx:
            enter_run(tx, job.run_id)
        while True:
            with job.write() as tx:
                approval = request(tx, job.run_id)
            if approval.status is ApprovalStatus.PENDING:
                for hook in hooks:
                    hook(job.runtime, approval.id)
                with job.write() as tx:
                    if still_pending(tx, approval.id):
                        change_run(tx, job.run_id, RunStatus.BLOCKED, reason="an approval is pending")
                        return "waiting"
            else:
                with job.write() as tx:
                    complete_run(tx, job.run_id, {"status": approval.status, "comment": approval.comment})
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


def pending_id(runtime: Runtime, run_id: int) -> int:
    with runtime.ledger.write() as tx:
        return request(tx, run_id).id


def answer(runtime: Runtime, approval_id: int, approved: bool = True, comment: str | None = None) -> None:
    with runtime.ledger.write() as tx:
        answer_approval(tx, runtime, approval_id, approved=approved, by="ada", comment=comment)


def begin(runtime: Runtime) -> int:
    with runtime.ledger.write() as tx:
        return start_run(tx, runtime, "waits", kind="workflow", name="w")


def is_run(ledger: Ledger, run_id: int, status: RunStatus) -> Callable[[], bool]:  # noqa: F811
    def check() -> bool:
        with ledger.read() as tx:
            return get_run(tx, run_id).status is status

    return check


@pytest.mark.soak
def test_a_run_waits_without_a_worker_and_goes_on_when_it_is_answered(
    runtime: Runtime, worker: Worker
) -> None:
    run_id = begin(runtime)
    eventually(is_run(runtime.ledger, run_id, RunStatus.BLOCKED))
    with runtime.ledger.read() as tx:
        [approval] = list_approvals(tx, run_id=run_id)
    eventually(lambda: all(job.status.final for job in _jobs(runtime, run_id)))
    answer(runtime, approval.id, comment="go")
    eventually(is_run(runtime.ledger, run_id, RunStatus.COMPLETED))
    with runtime.ledger.read() as tx:
        assert get_run(tx, run_id).result == {"status": "approved", "comment": "go"}
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
    approval_id = pending_id(runtime, run_id)
    answer(runtime, approval_id)
    with pytest.raises(Conflict, match="is approved by ada"):
        answer(runtime, approval_id, approved=False)
    assert len(_jobs(runtime, run_id)) == 2


def test_a_paused_run_stays_paused_and_finds_the_answer_later(runtime: Runtime) -> None:
    run_id = _blocked(runtime)
    approval_id = pending_id(runtime, run_id)
    with runtime.ledger.write() as tx:
        pause_run(tx, runtime, run_id)
    answer(runtime, approval_id)
    assert is_run(runtime.ledger, run_id, RunStatus.PAUSED)()
    with runtime.ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    with runtime.ledger.write() as tx:
        assert request(tx, run_id).status is ApprovalStatus.APPROVED


def test_the_approval_of_a_cancelled_run_is_closed(runtime: Runtime) -> None:
    run_id = _blocked(runtime)
    approval_id = pending_id(runtime, run_id)
    with runtime.ledger.write() as tx:
        cancel_run(tx, runtime, run_id)
        assert get_approval(tx, approval_id).status is ApprovalStatus.CLOSED
    with pytest.raises(Conflict, match="is closed"):
        answer(runtime, approval_id)
    assert is_run(runtime.ledger, run_id, RunStatus.CANCELLED)()


def test_a_run_that_was_never_started_as_work_is_answered_and_not_resumed(runtime: Runtime) -> None:
    with runtime.ledger.write() as tx:
        run_id = create_run(tx, "workflow", "by hand")
        change_run(tx, run_id, RunStatus.BLOCKED)
    approval_id = pending_id(runtime, run_id)
    answer(runtime, approval_id)
    assert is_run(runtime.ledger, run_id, RunStatus.BLOCKED)()


def _blocked(runtime: Runtime) -> int:
    run_id = begin(runtime)
    with runtime.ledger.write() as tx:
        change_run(tx, run_id, RunStatus.RUNNING)
        change_run(tx, run_id, RunStatus.BLOCKED)
    return run_id


def _jobs(runtime: Runtime, run_id: int) -> list[Any]:
    with runtime.ledger.read() as tx:
        return list_jobs(tx, run_id=run_id)
