"""Changes that a person must approve: they wait durably, and are made or not as was decided."""

from __future__ import annotations

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.approval import choose_mode, decide_change, pending_changes
from ratchet.agents.architect import send_feedback
from ratchet.agents.contract import place_of
from ratchet.agents.versions import find_version
from ratchet.kernel import Conflict, RunStatus
from ratchet.ledger import Ledger, Run
from ratchet.ledger.agents import get_agent
from ratchet.ledger.questions import Approval
from ratchet.ledger.runs import get_run
from ratchet.ledger.usage import list_sessions
from ratchet.runtime import Runtime, Worker
from tests.agents.settled import settle
from tests.runtime.deaths import die_at, places_passed
from tests.runtime.fleet import Fleet
from tests.waiting import eventually

NAME = "greeter"


def stopped(ledger: Ledger, run_id: int) -> Run:
    """The run, once it has ended or waits."""

    def look() -> Run:
        with ledger.read() as tx:
            return get_run(tx, run_id)

    eventually(lambda: look().status.final or look().status is RunStatus.BLOCKED)
    return look()


def told(runtime: Runtime, message: str) -> Run:
    return stopped(runtime.ledger, send_feedback(runtime, NAME, message, actor="test"))


def decided(runtime: Runtime, run: Run, *, approved: bool) -> Run:
    with runtime.ledger.write() as tx:
        decide_change(tx, runtime, NAME, approved=approved, by="Ada", comment="on purpose")
    return stopped(runtime.ledger, run.id)


def waiting(ledger: Ledger) -> list[Approval]:
    with ledger.read() as tx:
        return pending_changes(tx, NAME)


def current(ledger: Ledger) -> str | None:
    with ledger.read() as tx:
        return get_agent(tx, NAME).current


def test_a_change_that_callers_would_notice_waits_until_a_person_approves_it(
    runtime: Runtime, worker: Worker, ledger: Ledger
) -> None:
    first = settle(runtime)
    run = told(runtime, "drop count")
    assert run.status is RunStatus.BLOCKED, run.reason
    [asked] = waiting(ledger)
    assert (run.status, asked.run_id, current(ledger)) == (RunStatus.BLOCKED, run.id, first)
    assert asked.question == "callers: count is gone"
    assert "-def count" in asked.data["diff"]
    assert asked.data["cost"]["input_tokens"] == 10
    assert "needs an approval: callers: count is gone" in asked.data["verdicts"][0]["reason"]

    done = decided(runtime, run, approved=True)
    assert done.status is RunStatus.COMPLETED, done.reason
    # Never a patch, whatever the engine says.
    assert (done.result["version"], done.result["promoted"]) == ("1.0.0", True)
    assert current(ledger) == done.result["commit"]
    with ledger.read() as tx:
        certificate = find_version(tx, get_agent(tx, NAME), "current").certificate
    assert (certificate["parent"], certificate["proposed_by"]["engine"]) == (first, "author")
    assert (certificate["approval"]["by"], certificate["findings"]) == ("Ada", ["callers: count is gone"])
    assert [len(each["judge_hash"]) for each in certificate["judges"]] == [64]
    assert certificate["cost"]["input_tokens"] == 10
    assert set(certificate["checks"]) >= {"files", "tests", "start-up", "canary", "state"}
    with pytest.raises(Conflict, match="no change of greeter waits"):
        decided(runtime, run, approved=True)


@pytest.mark.soak
def test_a_change_that_is_refused_is_not_made_and_not_tried_again(
    runtime: Runtime, worker: Worker, ledger: Ledger
) -> None:
    first = settle(runtime)
    run = told(runtime, "drop count")
    done = decided(runtime, run, approved=False)
    assert (done.status, done.reason) == (RunStatus.FAILED, "refused by Ada: on purpose")
    assert (current(ledger), done.result["refused_by"]) == (first, "Ada")
    assert places_passed(runtime.home).count("after the session") == 1


@pytest.mark.soak
def test_each_agent_has_its_own_mode(runtime: Runtime, worker: Worker, ledger: Ledger) -> None:
    settle(runtime)
    for mode, message, status in (
        ("never", "drop count", RunStatus.FAILED),
        ("never", "say ahoy", RunStatus.COMPLETED),
        ("always", "say moin", RunStatus.BLOCKED),
        ("always", "remember politeness", RunStatus.BLOCKED),
        (None, "say hi", RunStatus.COMPLETED),
    ):
        with ledger.write() as tx:
            choose_mode(tx, NAME, mode)
        run = told(runtime, message)
        assert run.status is status, (mode, message, run.reason)
        if status is RunStatus.BLOCKED:
            assert decided(runtime, run, approved=True).status is RunStatus.COMPLETED
    # What a session was told when a person could not be asked.
    with ledger.read() as tx:
        runs = [each.reason for each in [get_run(tx, 2)]]
    assert "callers: count is gone" in str(runs)


@pytest.mark.soak
def test_a_lesson_that_removes_another_waits(runtime: Runtime, worker: Worker, ledger: Ledger) -> None:
    first = settle(runtime)
    store = StateStore(place_of(runtime.home, NAME).version(first))
    with store.edit() as state:
        state["lessons"] = ["be brief", "be kind"]
    run = told(runtime, "forget brief")
    [asked] = waiting(ledger)
    assert "the change of the state loses /lessons" in asked.question
    assert '-    "be brief",' in asked.data["diff"]
    assert decided(runtime, run, approved=True).status is RunStatus.COMPLETED
    assert store.read()["lessons"] == ["be kind"]


@pytest.mark.soak
def test_a_change_that_waits_survives_the_death_of_its_worker(
    runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    """Killed right before the run is blocked, and again while the approved change is placed."""
    settle(runtime)
    die_at(runtime.home, "asked")
    fleet.add()
    run_id = send_feedback(runtime, NAME, "drop count", actor="test")
    eventually(lambda: "asked" in places_passed(runtime.home))
    [asked] = waiting(ledger)
    fleet.add()
    run = stopped(ledger, run_id)
    assert run.status is RunStatus.BLOCKED
    assert [each.id for each in waiting(ledger)] == [asked.id]
    die_at(runtime.home, "pushed")
    with ledger.write() as tx:
        decide_change(tx, runtime, NAME, approved=True, by="Ada")
    eventually(lambda: "pushed" in places_passed(runtime.home))
    fleet.add()
    eventually(lambda: stopped(ledger, run_id).status.final)
    done = stopped(ledger, run_id)
    assert (done.status, done.result["version"]) == (RunStatus.COMPLETED, "1.0.0")
    with ledger.read() as tx:
        assert len(list_sessions(tx, run_id=run_id)) == 1
