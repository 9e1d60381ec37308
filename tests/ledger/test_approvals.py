"""Approvals: asked for once, decided once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ratchet.kernel import Conflict, NotFound
from ratchet.ledger import EventFilter, Ledger, Transaction
from ratchet.ledger.events import since
from ratchet.ledger.questions import (
    Approval,
    ApprovalStatus,
    close_approvals,
    decide_approval,
    get_approval,
    list_approvals,
    request_approval,
    still_pending,
)
from ratchet.ledger.runs import create_run

PENDING, APPROVED, REFUSED, CLOSED = ApprovalStatus


def asked(tx: Transaction, once: str = "once", **known: Any) -> Approval:
    return request_approval(tx, once, subject="commit c", question="Ship it?", **known)


def types(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        return [event.type for event in since(tx.connection, where=EventFilter(type="approval.*"))]


def test_a_question_is_asked_once(ledger: Ledger) -> None:
    with ledger.write() as tx:
        first = asked(tx, data={"diff": "+1"})
        assert asked(tx, data={"diff": "other"}) == first
    with ledger.write() as tx:
        assert asked(tx) == first
        assert asked(tx, "another").id != first.id
    assert (first.status, first.data) == (PENDING, {"diff": "+1"})
    assert types(ledger) == ["approval.requested"] * 2


@pytest.mark.parametrize("approved", [True, False])
def test_a_decision_says_who_when_and_why(ledger: Ledger, approved: bool) -> None:
    with ledger.write() as tx:
        approval = asked(tx)
    with ledger.write() as tx:
        decided = decide_approval(tx, approval.id, approved=approved, by="ada", comment="looks right")
    assert decided.status is (APPROVED if approved else REFUSED)
    assert (decided.decided_by, decided.comment) == ("ada", "looks right")
    assert (decided.decided_at or 0) >= decided.created_at
    assert types(ledger) == ["approval.requested", f"approval.{decided.status}"]


def test_a_decision_stands(ledger: Ledger) -> None:
    with ledger.write() as tx:
        approval = asked(tx)
        decided = decide_approval(tx, approval.id, approved=False, by="ada")
    for again in (True, False):
        with pytest.raises(Conflict, match="is refused by ada; only a pending"), ledger.write() as tx:
            decide_approval(tx, approval.id, approved=again, by="bob")
    with ledger.read() as tx:
        assert get_approval(tx, approval.id) == decided


def test_of_two_who_decide_at_once_one_is_refused(ledger: Ledger) -> None:
    with ledger.write() as tx:
        approval = asked(tx)
    outcomes: list[str] = []
    together = threading.Barrier(2)

    def decide(by: str) -> None:
        together.wait()
        try:
            with ledger.write() as tx:
                decide_approval(tx, approval.id, approved=True, by=by)
            outcomes.append(by)
        except Conflict:
            outcomes.append("late")

    people = [threading.Thread(target=decide, args=(name,)) for name in ("ada", "bob")]
    for person in people:
        person.start()
    for person in people:
        person.join()
    with ledger.read() as tx:
        assert sorted(outcomes) == sorted(["late", get_approval(tx, approval.id).decided_by or ""])
    assert types(ledger) == ["approval.requested", "approval.approved"]


def test_what_is_pending_of_a_run_is_closed_with_it(ledger: Ledger) -> None:
    with ledger.write() as tx:
        run_id, other_id = create_run(tx, "workflow", "w"), create_run(tx, "workflow", "other")
        answered = asked(tx, "1", run_id=run_id)
        waiting = asked(tx, "2", run_id=run_id)
        elsewhere = asked(tx, "3", run_id=other_id)
        decide_approval(tx, answered.id, approved=True, by="ada")
    with ledger.write() as tx:
        close_approvals(tx, run_id, "the run was cancelled")
        statuses = [get_approval(tx, each.id).status for each in (answered, waiting, elsewhere)]
        assert statuses == [APPROVED, CLOSED, PENDING]
        assert not still_pending(tx, waiting.id)
        assert still_pending(tx, elsewhere.id)
    with pytest.raises(Conflict, match="is closed; only"), ledger.write() as tx:
        decide_approval(tx, waiting.id, approved=True, by="ada")


def test_approvals_are_listed_newest_first_and_chosen(ledger: Ledger) -> None:
    with ledger.write() as tx:
        run_id = create_run(tx, "workflow", "w")
        first, second, third = asked(tx, "1"), asked(tx, "2", run_id=run_id), asked(tx, "3")
        decide_approval(tx, third.id, approved=True, by="ada")

        def found(**wanted: Any) -> list[int]:
            return [each.id for each in list_approvals(tx, **wanted)]

        assert found() == [third.id, second.id, first.id]
        assert found(status=PENDING) == [second.id, first.id]
        assert found(run_id=run_id) == [second.id]
        assert found(before=second.id, limit=1) == [first.id]


def test_text_from_anywhere_is_kept(ledger: Ledger) -> None:
    with ledger.write() as tx:
        approval = request_approval(
            tx, "o\x00", subject="\ud800", question="\x1b[31m", data={"diff": "\x00\ud800"}
        )
        decided = decide_approval(tx, approval.id, approved=True, by="\x00", comment="\ud800")
    assert decided.data == {"diff": "\x00\ud800"}
    assert decided.status is APPROVED


def test_what_does_not_exist_is_not_found(ledger: Ledger) -> None:
    with pytest.raises(NotFound), ledger.write() as tx:
        decide_approval(tx, 7, approved=True, by="ada")
    with pytest.raises(NotFound), ledger.read() as tx:
        get_approval(tx, 7)
