"""Questions before a plan hold it up until somebody answers; questions of a plan are kept for who carries it out."""

from __future__ import annotations

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger.questions import list_clarifications
from ratchet.modelserver import answer
from ratchet.projects.clarifications import answer as answer_question
from ratchet.projects.clarifications import ask
from tests.protocols.planning.conftest import NAME, Desk
from tests.protocols.planning.plans import plan, question
from tests.waiting import eventually

only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
GOOD = answer(plan())


@pytest.mark.soak
@only_sqlite
def test_a_blocking_question_holds_up_the_plan_and_its_answer_is_told_to_the_planner(desk: Desk) -> None:
    script = desk.open(GOOD)
    with desk.runtime.ledger.write(actor="test") as tx:
        asked = ask(
            tx,
            desk.project_id,
            "tone",
            "Which tone?",
            options=["warm", "cold"],
            applies_to="planning",
            blocking=True,
        )
        ask(tx, desk.project_id, "colour", "Which colour?", applies_to="execution")
    blocked = desk.plan()
    assert (blocked.status, script.requests) == (RunStatus.BLOCKED, [])
    assert blocked.reason == "planning waits for answers to: tone"
    with desk.runtime.ledger.write(actor="test") as tx:
        answer_question(tx, desk.runtime, asked.id, "warm", by="Ada")
    eventually(lambda: desk.look(blocked.run_id).status is RunStatus.PLANNED)
    assert '{"question": "Which tone?", "answer": "warm"}' in script.requests[0].said
    assert "Which colour?" not in script.requests[0].said


@pytest.mark.soak
def test_questions_of_a_plan_wait_for_who_carries_it_out(desk: Desk) -> None:
    desk.open(
        answer(
            plan(
                clarifications=[
                    question("tone", options=["warm", "cold"], recommended="warm", blocking=True),
                    question("colour"),
                ]
            )
        )
    )
    planned = desk.plan()
    assert planned.status is RunStatus.PLANNED, planned.reason
    with desk.runtime.ledger.read() as tx:
        asked = list_clarifications(tx, run_id=planned.run_id)
    assert [(each.key, each.applies_to, each.blocking, each.options, each.recommended) for each in asked] == [
        ("tone", "execution", True, ["warm", "cold"], "warm"),
        ("colour", "execution", False, None, None),
    ]
    assert all(each.open for each in asked)
    [told] = desk.events(planned, "planned")
    assert told.data["clarifications"] == ["tone", "colour"]
    assert desk.git("rev-parse", NAME) == told.data["commit"]
