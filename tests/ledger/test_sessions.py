from __future__ import annotations

import pytest

from ratchet.kernel import NotFound, Usage
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger import events as log
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt
from ratchet.ledger.usage import add_session, get_session, list_sessions


def test_a_session_is_found_again_with_what_it_used(ledger: Ledger) -> None:
    used = Usage(input_tokens=5, output_tokens=2, cost_microusd=7)
    with ledger.write() as tx:
        number = add_session(tx, role="author", engine="codex", usage=used, model="m", transcript="a" * 64)
    with ledger.read() as tx:
        found = get_session(tx, number)
    assert (found.engine, found.model, found.usage, found.failure) == ("codex", "m", used, None)


def test_a_failed_session_says_so_in_its_event(ledger: Ledger) -> None:
    with ledger.write() as tx:
        add_session(tx, role="author", engine="codex", usage=Usage(), failure="timeout", reason="too slow")
    with ledger.read() as tx:
        [event] = log.latest(tx.connection, where=EventFilter(type="session.failed"))
    assert event.message == "too slow"
    assert event.data["failure"] == "timeout"


def test_sessions_are_listed_newest_first_by_run_and_by_attempt(ledger: Ledger) -> None:
    with ledger.write() as tx:
        run_id = create_run(tx, "research", "r")
        [step_id] = create_steps(tx, run_id, [("s", {})])
        attempt_id = open_attempt(tx, get_step(tx, step_id))
        for role in ("author", "reviewer"):
            add_session(tx, role=role, engine="x", usage=Usage(), run_id=run_id, attempt_id=attempt_id)
        add_session(tx, role="author", engine="x", usage=Usage())
    with ledger.read() as tx:
        assert [each.role for each in list_sessions(tx, run_id=run_id)] == ["reviewer", "author"]
        assert len(list_sessions(tx)) == 3
        assert [each.id for each in list_sessions(tx, attempt_id=attempt_id, before=2)] == [1]


def test_an_unknown_session_is_not_found(ledger: Ledger) -> None:
    with ledger.read() as tx, pytest.raises(NotFound, match="session 9"):
        get_session(tx, 9)
