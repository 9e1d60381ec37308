"""Statements that go past SQLAlchemy: their values, rows and errors are the same as if they did not."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import LedgerError, Misuse
from ratchet.ledger import Ledger
from ratchet.ledger.prepared import Prepared
from ratchet.ledger.tables import budgets, runs

_INSERT = Prepared(sa.insert(runs).returning(runs.c.id))
_BY_NAME = sa.select(runs).where(runs.c.name == sa.bindparam("wanted")).order_by(runs.c.id)
_FIND = Prepared(_BY_NAME)
_BUDGET = Prepared(sa.insert(budgets))
# A NUL and a lone surrogate, which a database refuses, and what ends a text in SQL or a placeholder in a driver.
_HOSTILE = "a\x00b \ud800 '; %s %(x)s ? :y"


def row(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": "test",
        "name": "one",
        "status": "pending",
        "spec": {"deep": [1, None, _HOSTILE]},
        "simulated": True,
        "used_recording": False,
        "created_at": 1,
        "updated_at": 2,
    }
    return plain | changes


def test_values_and_rows_go_through_the_types_of_their_columns(ledger: Ledger) -> None:
    with ledger.write() as tx:
        number = _INSERT.scalar(tx.connection, row(name=_HOSTILE, reason=None))
        budget = {"scope": "run", "scope_id": number, "cost_usd": 0.1, "tokens": None}
        assert _BUDGET.rows(tx.connection, budget) == []
    kept = "a\ufffdb ? '; %s %(x)s ? :y"
    with ledger.read() as tx:
        found = _FIND.mapping(tx.connection, {"wanted": kept})
        plain = tx.connection.execute(_BY_NAME, {"wanted": kept}).mappings().one()
        assert found == dict(plain)
        assert found is not None
        assert (found["id"], found["simulated"], found["used_recording"]) == (number, True, False)
        assert isinstance(found["simulated"], bool)
        assert found["spec"] == {"deep": [1, None, _HOSTILE]}
        assert _FIND.rows(tx.connection, {"wanted": kept}) == [tuple(plain.values())]
        cost = Prepared(sa.select(budgets.c.cost_usd)).scalar(tx.connection)
        assert cost == 0.1


def test_one_statement_serves_for_different_values(ledger: Ledger) -> None:
    with ledger.write() as tx:
        _INSERT.scalar(tx.connection, row(reason="because"))
        _INSERT.scalar(tx.connection, row(updated_at=7))
        found = _FIND.mappings(tx.connection, {"wanted": "one"})
    assert [(each["reason"], each["updated_at"]) for each in found] == [("because", 2), (None, 7)]


def test_many_rows_are_written_at_once_and_none_of_them_without_a_commit(ledger: Ledger) -> None:
    insert = Prepared(sa.insert(runs))
    with ledger.write() as tx:
        insert.tell_each(tx.connection, [])
        insert.tell_each(tx.connection, (row(updated_at=each) for each in range(300)))
    with ledger.write() as tx:
        insert.tell_each(tx.connection, [row(updated_at=1000)])
        tx.connection.rollback()
    with ledger.read() as tx:
        found = _FIND.mappings(tx.connection, {"wanted": "one"})
    assert [each["updated_at"] for each in found] == list(range(300))


def test_nothing_found_is_nothing(ledger: Ledger) -> None:
    with ledger.read() as tx:
        given = {"wanted": "nobody"}
        assert _FIND.rows(tx.connection, given) == _FIND.mappings(tx.connection, given) == []
        assert _FIND.first(tx.connection, given) is None
        assert _FIND.scalar(tx.connection, given) is None
        assert _FIND.mapping(tx.connection, given) is None


def test_errors_are_those_of_sqlalchemy_and_say_what_is_wrong(ledger: Ledger) -> None:
    with pytest.raises(exc.IntegrityError), ledger.write() as tx:
        _BUDGET.tell_each(tx.connection, [{"scope": "run", "scope_id": 1}] * 2)
    with pytest.raises(Misuse, match="does not fit"), ledger.write() as tx:
        _BUDGET.rows(tx.connection, {"scope": "run", "scope_id": 2**70})
    with pytest.raises(Misuse, match="cannot be stored as JSON"), ledger.write() as tx:
        _INSERT.scalar(tx.connection, row(spec={"score": float("nan")}))
    with pytest.raises(LedgerError), ledger.read() as tx:
        Prepared(sa.text("SELECT nothing FROM nowhere WHERE")).rows(tx.connection)


def test_a_value_that_is_missing_is_not_taken_for_null(ledger: Ledger) -> None:
    with ledger.read() as tx:
        with pytest.raises(KeyError, match="wanted"):
            _FIND.rows(tx.connection)
        with pytest.raises(TypeError, match="list of values"):
            Prepared(sa.select(runs).where(runs.c.id.in_([1, 2]))).rows(tx.connection)
