import pytest

from ratchet.kernel import (
    Conflict,
    IllegalTransition,
    NotFound,
    Outcome,
    RunStatus,
    StateChanged,
    StepStatus,
    Verdict,
)
from ratchet.ledger import Event, EventFilter, Ledger, change_run, change_step
from ratchet.ledger import events as log
from ratchet.ledger.projects import add_project
from ratchet.ledger.runs import (
    close_attempt,
    create_run,
    create_steps,
    get_run,
    get_step,
    list_attempts,
    list_runs,
    list_steps,
    open_attempt,
)


def new_run(ledger: Ledger, **more: object) -> int:
    with ledger.write() as tx:
        return create_run(tx, "demo", "one", **more)


def new_step(ledger: Ledger) -> int:
    with ledger.write() as tx:
        [step] = create_steps(tx, create_run(tx, "demo", "one"), [("a", {})])
        return step


def said(ledger: Ledger, type_: str) -> list[Event]:
    with ledger.read() as tx:
        return log.since(tx.connection, where=EventFilter(type=type_))


def test_a_change_writes_the_status_its_reason_and_one_event_together(ledger: Ledger) -> None:
    run = new_run(ledger)
    with ledger.write(actor="me", request_id="r-9") as tx:
        assert (
            change_run(tx, run, RunStatus.BLOCKED, reason="no engine", data={"engine": "codex"}) == "pending"
        )
    with ledger.read() as tx:
        found = get_run(tx, run)
    assert (found.status, found.reason, found.ended_at) == (RunStatus.BLOCKED, "no engine", None)
    [event] = said(ledger, "run.blocked")
    assert (event.run_id, event.actor, event.request_id, event.message) == (run, "me", "r-9", "no engine")
    assert event.data == {"from": "pending", "to": "blocked", "engine": "codex"}


def test_an_illegal_change_changes_nothing_and_says_nothing(ledger: Ledger) -> None:
    run = new_run(ledger)
    with pytest.raises(IllegalTransition, match=f"run {run} is pending"), ledger.write() as tx:
        change_run(tx, run, RunStatus.COMPLETED)
    with ledger.read() as tx:
        assert get_run(tx, run).status is RunStatus.PENDING
    assert said(ledger, "run.completed") == []


def test_a_cancelled_run_is_not_revived(ledger: Ledger) -> None:
    run = new_run(ledger)
    with ledger.write() as tx:
        change_run(tx, run, RunStatus.CANCELLED)
    for status in RunStatus:
        with pytest.raises(IllegalTransition, match="that is final"), ledger.write() as tx:
            change_run(tx, run, status)
    with ledger.read() as tx:
        assert get_run(tx, run).ended_at is not None


def test_a_change_from_an_expected_status_fails_when_it_has_another(ledger: Ledger) -> None:
    step = new_step(ledger)
    with ledger.write() as tx:
        change_step(tx, step, StepStatus.RUNNING, expected=[StepStatus.PENDING, StepStatus.BLOCKED])
    with pytest.raises(StateChanged, match=f"step {step} is running, not pending"), ledger.write() as tx:
        change_step(tx, step, StepStatus.CANCELLED, expected=[StepStatus.PENDING])


def test_what_does_not_exist_cannot_change(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="run 41 does not exist"), ledger.write() as tx:
        change_run(tx, 41, RunStatus.RUNNING)
    with pytest.raises(NotFound, match="step 42 does not exist"), ledger.write() as tx:
        change_step(tx, 42, StepStatus.RUNNING)


@pytest.mark.parametrize(("simulated", "completes"), [(True, True), (False, False)])
def test_a_recording_completes_only_what_was_started_as_a_simulation(
    ledger: Ledger, simulated: bool, completes: bool
) -> None:
    run = new_run(ledger, simulated=simulated)
    with ledger.write() as tx:
        [step] = create_steps(tx, run, [("a", {})])
        open_attempt(tx, get_step(tx, step), simulated=True)
        change_run(tx, run, RunStatus.RUNNING)
    if completes:
        with ledger.write() as tx:
            change_run(tx, run, RunStatus.COMPLETED)
    else:
        with pytest.raises(Conflict, match="was not started as a simulation"), ledger.write() as tx:
            change_run(tx, run, RunStatus.COMPLETED)


def test_an_attempt_that_was_left_open_is_closed_by_the_next(ledger: Ledger) -> None:
    step = new_step(ledger)
    with ledger.write() as tx:
        open_attempt(tx, get_step(tx, step), process_id="dead")
    with ledger.write() as tx:
        second = open_attempt(tx, get_step(tx, step))
        verdict = Verdict(Outcome.PASSED, "all green", "tests", "0" * 64, measurements={"seconds": 1.5})
        close_attempt(tx, second, Outcome.PASSED, "all green", verdict)
    with pytest.raises(Conflict, match="ended already"), ledger.write() as tx:
        close_attempt(tx, second, Outcome.FAILED, "too late")
    with ledger.read() as tx:
        first, last = list_attempts(tx, step)
    assert (first.outcome, first.reason) == (Outcome.ERROR, "interrupted: its process ended")
    assert (last.number, last.outcome, last.verdict["measurements"]) == (2, Outcome.PASSED, {"seconds": 1.5})


def test_steps_keep_their_order_and_their_names_are_their_own(ledger: Ledger) -> None:
    with ledger.write() as tx:
        run = create_run(tx, "demo", "one", spec={"deep": [1, None]})
        create_steps(tx, run, [("b", {"n": 1}), ("a", {"n": 2})])
        create_steps(tx, run, [("c", {})])
        assert create_steps(tx, run, []) == []
    with pytest.raises(Conflict, match="has a step a already"), ledger.write() as tx:
        create_steps(tx, run, [("a", {})])
    with ledger.read() as tx:
        assert [(step.position, step.name) for step in list_steps(tx, run)] == [(0, "b"), (1, "a"), (2, "c")]
        assert get_run(tx, run).spec == {"deep": [1, None]}


def test_a_project_name_is_taken_once(ledger: Ledger) -> None:
    with ledger.write() as tx:
        add_project(tx, "work")
    with pytest.raises(Conflict, match="there is a project 'work' already"), ledger.write() as tx:
        add_project(tx, "work")


def test_runs_are_listed_newest_first_page_by_page_and_by_what_they_are(ledger: Ledger) -> None:
    with ledger.write() as tx:
        project = add_project(tx, "work")
        runs = [create_run(tx, kind, "r", project_id=project) for kind in ("demo", "research") * 5]
        change_run(tx, runs[4], RunStatus.RUNNING)
    with ledger.read() as tx:
        page = list_runs(tx, kind="demo", limit=3)
        rest = list_runs(tx, kind="demo", limit=3, before=page[-1].id)
        assert [run.id for run in [*page, *rest]] == runs[8::-2]
        assert [run.id for run in list_runs(tx, status=RunStatus.RUNNING, project_id=project)] == [runs[4]]
        assert list_runs(tx, name="other") == []
