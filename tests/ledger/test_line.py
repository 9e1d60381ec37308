"""What is told without waiting for an answer is run in its place all the same."""

from __future__ import annotations

import signal
from contextlib import suppress

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import LedgerError, LedgerUnavailable
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.prepared import Prepared
from ratchet.ledger.tables import budgets, projects
from tests.ledger.conftest import MakeLedger
from tests.postgres import PostgresServer

_ADD = Prepared(sa.insert(projects))
_COUNT = sa.select(sa.func.count()).select_from(projects)
_COUNTED = Prepared(_COUNT)


def project(name: str) -> dict[str, object]:
    return {"name": name, "created_at": 1}


def count(ledger: Ledger) -> int:
    with ledger.read() as tx:
        return int(_COUNTED.scalar(tx.connection))


def ask(ledger: Ledger, statement: Prepared) -> list[tuple[object, ...]]:
    with ledger.read() as tx:
        return statement.rows(tx.connection)


def test_what_is_told_is_there_for_whatever_comes_next(ledger: Ledger) -> None:
    with ledger.write() as tx:
        _ADD.tell(tx.connection, project("one"))
        assert _COUNTED.scalar(tx.connection) == 1
        _ADD.tell_each(tx.connection, [project("two"), project("three")])
        assert tx.connection.execute(_COUNT).scalar() == 3
        _ADD.tell(tx.connection, project("four"))
    assert count(ledger) == 4


def test_what_is_told_and_refused_is_raised_by_the_commit_at_the_latest(ledger: Ledger) -> None:
    twice = [project("one"), project("one")]
    with pytest.raises(exc.IntegrityError, match="INSERT INTO projects"), ledger.write() as tx:
        _ADD.tell_each(tx.connection, twice)
    with pytest.raises(exc.IntegrityError, match="INSERT INTO projects"), ledger.write() as tx:
        _tell_and_ask(tx, twice)
    assert count(ledger) == 0


def test_what_is_told_in_a_transaction_that_fails_is_not_run_by_the_next(ledger: Ledger) -> None:
    for _ in range(3):
        with pytest.raises(KeyError), ledger.write() as tx:
            _fail(tx)
        assert count(ledger) == 0


def test_what_is_told_within_a_savepoint_goes_with_it(ledger: Ledger) -> None:
    with ledger.write() as tx:
        _ADD.tell(tx.connection, project("one"))
        inner = tx.connection.begin_nested()
        _ADD.tell(tx.connection, project("two"))
        inner.rollback()
        _ADD.tell(tx.connection, project("three"))
    with ledger.read() as tx:
        named = tx.connection.execute(sa.select(projects.c.name).order_by(projects.c.id)).scalars()
        assert list(named) == ["one", "three"]


def _fail(tx: Transaction) -> None:
    _ADD.tell(tx.connection, project("one"))
    raise KeyError


def _tell_and_ask(tx: Transaction, rows: list[dict[str, object]]) -> None:
    tx.event("never")
    _ADD.tell_each(tx.connection, rows)
    tx.connection.execute(_COUNT)


def test_a_read_only_transaction_refuses_what_is_told(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    with ledger.read() as tx:
        _ADD.tell(tx.connection, project("one"))
    with pytest.raises(LedgerUnavailable, match="read-only"), ledger.read() as tx:
        Prepared(sa.insert(budgets)).rows(tx.connection, {"scope": "run", "scope_id": 1})
    assert count(ledger) == 0


def test_a_server_that_was_restarted_between_two_transactions_is_not_noticed(
    make_ledger: MakeLedger, postgres_server: PostgresServer
) -> None:
    ledger = make_ledger("postgresql")
    for stop in ("fast", "immediate"):
        # Several at once, so that several connections stay at hand.
        with ledger.read(), ledger.read(), ledger.write() as tx:
            _ADD.tell(tx.connection, project(stop))
        postgres_server.stop(stop)
        postgres_server.start()
        with ledger.read(), ledger.write() as tx:
            _ADD.tell(tx.connection, project(f"after {stop}"))
    assert count(ledger) == 4


def test_a_connection_that_the_server_has_closed_is_not_used_again(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    assert count(ledger) == 0
    others = (
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database()"
    )
    with ledger.engine.connect() as connection:
        connection.execute(sa.text(f"{others} AND pid <> pg_backend_pid()"))
    assert count(ledger) == 0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_comes_out_as_it_is_and_spoils_nothing_that_comes_later(
    make_ledger: MakeLedger, kind: type[BaseException]
) -> None:
    ledger = make_ledger("postgresql")

    def interrupt(*_: object) -> None:
        raise kind

    def wait() -> None:
        with ledger.write() as tx:
            _ADD.tell(tx.connection, project("never"))
            Prepared(sa.text("SELECT pg_sleep(60)")).rows(tx.connection)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(kind):
            wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for number in range(6):
        with ledger.write() as tx:
            _ADD.tell(tx.connection, project(f"after {number}"))
    assert count(ledger) == 6


def test_a_statement_whose_columns_have_changed_fails_once_at_the_most(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    with psycopg.connect(ledger.url, autocommit=True) as other:
        other.execute("CREATE TABLE changing (value integer)")
        try:
            asked = Prepared(sa.select(sa.table("changing", sa.column("value")).c.value))
            assert ask(ledger, asked) == []
            other.execute("ALTER TABLE changing ALTER COLUMN value TYPE text")
            with pytest.raises(LedgerError):
                ask(ledger, asked)
            assert [ask(ledger, asked) for _ in range(4)] == [[]] * 4
        finally:
            other.execute("DROP TABLE changing")


def test_a_connection_whose_statements_were_discarded_fails_once_at_the_most(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    with ledger.read() as tx:
        assert _COUNTED.scalar(tx.connection) == 0
        driver = tx.connection.connection.dbapi_connection
    assert driver is not None
    driver.autocommit = True
    driver.cursor().execute("DISCARD ALL")
    driver.autocommit = False
    with pytest.raises(LedgerError):
        count(ledger)
    assert [count(ledger) for _ in range(4)] == [0] * 4


def test_an_error_that_was_swallowed_does_not_pass_for_a_commit(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    add_twice = Prepared(sa.insert(projects).values([project("one"), project("one")]))
    with pytest.raises(exc.PendingRollbackError), ledger.write() as tx, suppress(exc.IntegrityError):
        add_twice.rows(tx.connection)
    assert count(ledger) == 0


def test_a_statement_is_prepared_once_per_connection_also_after_a_rollback(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    prepared = Prepared(sa.text("SELECT count(*) FROM pg_prepared_statements").columns(sa.column("n")))
    with ledger.read() as tx:
        first = prepared.scalar(tx.connection)
    for _ in range(8):
        with ledger.read() as tx:
            tx.connection.execute(_COUNT)
            again = prepared.scalar(tx.connection)
    assert again == first
