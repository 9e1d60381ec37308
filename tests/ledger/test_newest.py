"""What pages ask for: only the newest of a long history."""

from __future__ import annotations

from ratchet.kernel import Outcome, RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.ledger import tail_log
from ratchet.ledger.projects import add_project
from ratchet.ledger.protocols import add_protocol, list_protocols
from ratchet.ledger.questions import add_clarification, latest_answered, record_answer
from ratchet.ledger.runs import (
    close_attempt,
    create_run,
    create_steps,
    get_step,
    newest_attempts,
    open_attempt,
)
from ratchet.ledger.statuses import change_run


def test_the_newest_attempt_at_each_step_comes_in_the_order_of_the_steps(ledger: Ledger) -> None:
    with ledger.write() as tx:
        run_id, other = (create_run(tx, "protocol", name) for name in ("a", "b"))
        first, untried, last = create_steps(tx, run_id, [("1", {}), ("2", {}), ("3", {})])
        [elsewhere] = create_steps(tx, other, [("1", {})])
        for step in (last, first, last, elsewhere):
            close_attempt(tx, open_attempt(tx, get_step(tx, step)), Outcome.FAILED, "no")
        found = newest_attempts(tx, run_id)
    assert [(each.step_id, each.number) for each in found] == [(first, 1), (last, 2)]
    assert untried not in [each.step_id for each in found]


def test_the_end_of_a_log_is_its_last_lines_in_their_order(ledger: Ledger) -> None:
    with ledger.write() as tx:
        [step] = create_steps(tx, create_run(tx, "protocol", "a"), [("1", {})])
        attempt_id = open_attempt(tx, get_step(tx, step))
        for word in ("one", "two", "three"):
            tx.event("session.message", attempt_id=attempt_id, message=word)
    with ledger.read() as tx:
        lines = tail_log(tx, attempt_id, most=2).splitlines()
    assert [line.split()[-1] for line in lines] == ["two", "three"]


def test_answers_come_last_asked_first_without_open_questions(ledger: Ledger) -> None:
    with ledger.write() as tx:
        project, other = add_project(tx, "shop"), add_project(tx, "other")
        about = {"question": "?", "applies_to": "planning", "blocking": False}
        asked = [add_clarification(tx, project, key, **about) for key in ("a", "b", "c")]
        add_clarification(tx, other, "a", **about)
        for each in asked[:2]:
            assert each is not None
            record_answer(tx, each.id, "yes", by="test")
        found = latest_answered(tx, project_id=project)
    assert [each.key for each in found] == ["b", "a"]


def test_protocols_are_listed_by_status(ledger: Ledger) -> None:
    with ledger.write() as tx:
        project = add_project(tx, "shop")
        numbers = [create_run(tx, "protocol", name, project_id=project) for name in ("a", "b", "c")]
        for number, name in zip(numbers, "abc", strict=True):
            add_protocol(tx, number, project, name, base_branch="main")
        for number in numbers[:2]:
            change_run(tx, number, RunStatus.BLOCKED)
        found = list_protocols(tx, status=RunStatus.BLOCKED)
    assert [each.run_id for each in found] == [numbers[1], numbers[0]]
