from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from ratchet.kernel import Conflict, Misuse, NotFound, RunStatus, StepStatus
from ratchet.ledger import change_run, change_step
from ratchet.ledger.projects import add_project, get_project
from ratchet.ledger.questions import list_blockers
from ratchet.ledger.runs import create_run, create_steps, get_step, status_of_run
from ratchet.projects.clarifications import answer, ask, list_clarifications, waits_for_answers
from ratchet.projects.secrets import put_secrets
from ratchet.runtime import Runtime, list_jobs, start_run
from tests.projects.jobs import told
from tests.waiting import eventually


@pytest.fixture
def project(runtime: Runtime) -> int:
    with runtime.ledger.write() as tx:
        return add_project(tx, "demo")


def asked(runtime: Runtime, project: int, key: str, **more: Any) -> int:
    with runtime.ledger.write() as tx:
        return ask(tx, project, key, f"What about {key}?", **more).id


def say(runtime: Runtime, number: int, said: object) -> None:
    with runtime.ledger.write() as tx:
        answer(tx, runtime, number, said, by="ada")


def run_of(runtime: Runtime, project: int) -> int:
    """A run that has a job, as protocols do."""
    with runtime.ledger.write() as tx:
        return start_run(tx, runtime, "protocol", kind="protocol", name="0001-work", project_id=project)


def block(runtime: Runtime, project: int, run_id: int, phase: Any, event: str, *, at: RunStatus) -> None:
    with runtime.ledger.write() as tx:
        change_run(tx, run_id, at)
        assert waits_for_answers(tx, project, phase, run_id)
        tx.event(event, run_id=run_id, project_id=project)
        change_run(tx, run_id, RunStatus.BLOCKED)


def status(runtime: Runtime, run_id: int) -> RunStatus:
    with runtime.ledger.read() as tx:
        return status_of_run(tx, run_id)


def jobs(runtime: Runtime) -> int:
    with runtime.ledger.read() as tx:
        return len(list_jobs(tx))


def test_a_question_is_asked_once_about_each_thing(runtime: Runtime, project: int) -> None:
    with runtime.ledger.write() as tx:
        run = create_run(tx, "protocol", "0001-work", project_id=project)
        [step] = create_steps(tx, run, [("01-build", {})])
    about: list[dict[str, Any]] = [{}, {"run_id": run}, {"run_id": run, "step_id": step}]
    first = [
        asked(runtime, project, "colour", options=["red", "blue"], recommended="red", **each)
        for each in about
    ]
    second = [asked(runtime, project, "colour", **each) for each in about]
    assert first == second
    assert len(set(first)) == 3
    with runtime.ledger.read() as tx:
        found = list_clarifications(tx, project_id=project)
        assert [each.id for each in list_clarifications(tx, run_id=run)] == first[1:]
        assert [each.id for each in list_clarifications(tx, project_id=project, after=first[0], limit=1)] == [
            first[1]
        ]
    assert [(each.options, each.recommended, each.open) for each in found] == [
        (["red", "blue"], "red", True)
    ] * 3
    assert [event.type for event in told(runtime, project)].count("clarification_asked") == 3


def test_only_open_blocking_questions_of_the_same_phase_and_place_block(
    runtime: Runtime, project: int
) -> None:
    with runtime.ledger.write() as tx:
        run, other = (create_run(tx, "protocol", name, project_id=project) for name in ("a", "b"))
        one, two = create_steps(tx, run, [("01", {}), ("02", {})])
    asked(runtime, project, "free", applies_to="execution")
    asked(runtime, project, "planning", applies_to="planning", blocking=True)
    of_project = asked(runtime, project, "project", applies_to="execution", blocking=True)
    of_run = asked(runtime, project, "run", applies_to="execution", blocking=True, run_id=run)
    of_step = asked(runtime, project, "step", applies_to="execution", blocking=True, step_id=one)
    with runtime.ledger.read() as tx:

        def blockers(run_id: int | None = None, step_id: int | None = None) -> list[int]:
            found = list_blockers(tx, project, "execution", run_id=run_id, step_id=step_id)
            return [each.id for each in found]

        assert blockers() == [of_project]
        assert blockers(run) == [of_project, of_run]
        assert blockers(run, one) == [of_project, of_run, of_step]
        assert blockers(run, two) == [of_project, of_run]
        assert blockers(other) == [of_project]
    say(runtime, of_project, "yes")
    with runtime.ledger.read() as tx:
        assert [each.id for each in list_blockers(tx, project, "execution", run_id=run)] == [of_run]


def test_an_answer_is_given_once_and_says_who_gave_it(runtime: Runtime, project: int) -> None:
    number = asked(runtime, project, "colour", options=["red", "blue"])
    with pytest.raises(Misuse, match="not one of the answers"):
        say(runtime, number, "green")
    with pytest.raises(Misuse, match="no answer"):
        say(runtime, number, None)
    with pytest.raises(NotFound):
        say(runtime, 999, "red")
    say(runtime, number, "red")
    with pytest.raises(Conflict, match="by ada"):
        say(runtime, number, "blue")
    with runtime.ledger.read() as tx:
        [found] = list_clarifications(tx, project_id=project)
        assert list_clarifications(tx, project_id=project, open_only=True) == []
    assert (found.answer, found.answered_by, found.open) == ("red", "ada", False)
    last = told(runtime, project)[-1]
    assert (last.type, last.data["answer"], last.data["by"]) == ("clarification_answered", "red", "ada")


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("git_identity", "Ada"),
        ("git_identity", {"name": "Ada"}),
        ("git_identity", {"name": "A\nB", "email": "x"}),
        ("required_checks", "test"),
        ("required_checks", [7]),
        ("default_models", {"cooking": "x"}),
        ("secrets", ["hunter2-the-value"]),
        ("secrets", {"git_token": "hunter2-the-value"}),
        ("secrets", ["git_token"]),
        ("anything", "hunter2" * 10_000),
    ],
)
def test_an_answer_that_cannot_be_meant_is_refused_and_not_repeated(
    runtime: Runtime, project: int, key: str, wrong: object
) -> None:
    number = asked(runtime, project, key)
    with pytest.raises(Misuse) as refused:
        say(runtime, number, wrong)
    assert "hunter2" not in f"{refused.value} {refused.value.hint} {told(runtime, project)}"


def test_secrets_are_answered_with_the_names_of_those_that_are_there(runtime: Runtime, project: int) -> None:
    number = asked(runtime, project, "secrets")
    with runtime.ledger.write() as tx:
        put_secrets(tx, runtime, project, {"git_token": "token-of-demo"})
    say(runtime, number, ["git_token"])
    with runtime.ledger.read() as tx:
        assert list_clarifications(tx, project_id=project)[0].answer == ["git_token"]


def test_an_answer_about_one_run_does_not_settle_the_project(runtime: Runtime, project: int) -> None:
    run = run_of(runtime, project)
    say(runtime, asked(runtime, project, "ci_provider", run_id=run), "gitlab")
    with runtime.ledger.read() as tx:
        assert get_project(tx, project).ci_provider is None


def test_the_last_answer_lets_planning_go_on_as_planning(runtime: Runtime, project: int) -> None:
    run = run_of(runtime, project)
    first, second = (
        asked(runtime, project, key, applies_to="planning", blocking=True, run_id=run) for key in ("a", "b")
    )
    block(runtime, project, run, "planning", "planning_blocked_clarifications", at=RunStatus.PLANNING)
    say(runtime, first, "yes")
    assert (status(runtime, run), jobs(runtime)) == (RunStatus.BLOCKED, 1)
    say(runtime, second, "yes")
    assert (status(runtime, run), jobs(runtime)) == (RunStatus.PLANNING, 2)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_of_two_answers_at_once_the_last_one_goes_on(runtime: Runtime, project: int) -> None:
    run = run_of(runtime, project)
    first, second = (
        asked(runtime, project, key, applies_to="execution", blocking=True, run_id=run) for key in "ab"
    )
    block(runtime, project, run, "execution", "execution_blocked_clarifications", at=RunStatus.RUNNING)
    with ThreadPoolExecutor(1) as threads:
        with runtime.ledger.write() as tx:
            answer(tx, runtime, first, "yes", by="ada")
            other = threads.submit(say, runtime, second, "yes")
            eventually(lambda: other.done() or waiters(runtime) > 0)
        other.result()
    assert (status(runtime, run), jobs(runtime)) == (RunStatus.RUNNING, 2)


def waiters(runtime: Runtime) -> int:
    """How many transactions wait for a lock."""
    count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with runtime.ledger.read() as tx:
        return int(tx.connection.execute(sa.text(count)).scalar_one())


def test_a_run_that_is_blocked_by_something_else_stays_blocked(runtime: Runtime, project: int) -> None:
    run = run_of(runtime, project)
    number = asked(runtime, project, "a", applies_to="execution", blocking=True)
    block(runtime, project, run, "execution", "execution_blocked_clarifications", at=RunStatus.RUNNING)
    with runtime.ledger.write() as tx:
        change_run(tx, run, RunStatus.RUNNING)
        change_run(tx, run, RunStatus.BLOCKED, reason="a step has failed")
    say(runtime, number, "yes")
    assert status(runtime, run) is RunStatus.BLOCKED


def test_a_blocked_step_of_a_run_that_goes_on_is_put_back_in_line(runtime: Runtime, project: int) -> None:
    run = run_of(runtime, project)
    with runtime.ledger.write() as tx:
        [step] = create_steps(tx, run, [("01-build", {})])
        change_run(tx, run, RunStatus.RUNNING)
    number = asked(runtime, project, "a", applies_to="execution", blocking=True, step_id=step)
    with runtime.ledger.write() as tx:
        change_step(tx, step, StepStatus.BLOCKED)
        tx.event("execution_blocked_clarifications", run_id=run, step_id=step)
    say(runtime, number, "yes")
    with runtime.ledger.read() as tx:
        assert get_step(tx, step).status is StepStatus.PENDING
    assert (status(runtime, run), jobs(runtime)) == (RunStatus.RUNNING, 2)


def test_a_cancelled_run_is_not_revived_by_an_answer(runtime: Runtime, project: int) -> None:
    run = run_of(runtime, project)
    number = asked(runtime, project, "a", applies_to="execution", blocking=True, run_id=run)
    block(runtime, project, run, "execution", "execution_blocked_clarifications", at=RunStatus.RUNNING)
    with runtime.ledger.write() as tx:
        change_run(tx, run, RunStatus.CANCELLED)
    say(runtime, number, "yes")
    assert status(runtime, run) is RunStatus.CANCELLED


def test_a_question_about_a_run_of_another_project_is_refused(runtime: Runtime, project: int) -> None:
    with runtime.ledger.write() as tx:
        other = add_project(tx, "other")
    run = run_of(runtime, other)
    with pytest.raises(Misuse, match="not one of project"):
        asked(runtime, project, "a", run_id=run)
