"""The next attempt at a step: its number, and what becomes of one that was left open."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.kernel import Limits, Outcome
from ratchet.ledger import Budgets, Ledger, Spender, Step, Transaction
from ratchet.ledger.runs import close_attempt, create_run, find_or_create_step, get_attempt, open_attempt
from ratchet.ledger.tables import attempts, holds
from ratchet.ledger.usage import hold
from tests.ledger.conftest import MakeLedger
from tests.ledger.effort import effort

_BUDGETS = Budgets(limits={"attempt": Limits(tokens=10)})


def step_of(tx: Transaction, name: str = "one") -> Step:
    return find_or_create_step(tx, create_run(tx, "test", name), name, {})[0]


def test_attempts_are_numbered_per_step(ledger: Ledger) -> None:
    with ledger.write() as tx:
        one, two = step_of(tx, "one"), step_of(tx, "two")
        opened = [open_attempt(tx, step) for step in (one, two, one, one)]
        found = [get_attempt(tx, each) for each in opened]
    assert [(each.step_id, each.number) for each in found] == [
        (one.id, 1),
        (two.id, 1),
        (one.id, 2),
        (one.id, 3),
    ]


def test_one_that_was_left_open_is_closed_and_keeps_nothing_from_others(ledger: Ledger) -> None:
    with ledger.write() as tx:
        step = step_of(tx)
        left = open_attempt(tx, step)
        hold(tx, Spender(left, step.run_id), _BUDGETS)
    with ledger.write() as tx:
        following = open_attempt(tx, step)
        found = get_attempt(tx, left)
        assert (found.outcome, found.reason) == (Outcome.ERROR, "interrupted: its process ended")
        assert tx.connection.execute(sa.select(holds)).all() == []
        assert get_attempt(tx, following).outcome is None


def test_one_that_has_ended_stays_as_it_is(ledger: Ledger) -> None:
    with ledger.write() as tx:
        step = step_of(tx)
        ended = open_attempt(tx, step)
        close_attempt(tx, ended, Outcome.PASSED, "well")
        open_attempt(tx, step)
        assert get_attempt(tx, ended).reason == "well"


def test_the_next_costs_the_same_however_many_there_were(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("sqlite")
    with ledger.write() as tx:
        step = step_of(tx)
        few = effort(tx, lambda tx: open_attempt(tx, step))
        row = {"run_id": step.run_id, "step_id": step.id, "simulated": False, "started_at": 1, "ended_at": 1}
        tx.connection.execute(sa.insert(attempts), [{**row, "number": each} for each in range(2, 2000)])
        many = effort(tx, lambda tx: open_attempt(tx, step))
    assert many <= few + 100
