"""What a ledger makes of values, errors and connections, whatever happens to the server behind them."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import LedgerError, LedgerUnavailable, Misuse
from ratchet.ledger import Ledger
from ratchet.ledger.tables import budgets, projects, runs
from tests.ledger.conftest import MakeLedger
from tests.postgres import PostgresServer

_ADD = sa.insert(projects)
_COUNT = sa.select(sa.func.count()).select_from(projects)
_BUDGET = sa.insert(budgets)
# A NUL and a lone surrogate, which a database refuses, and what ends a text in SQL or a placeholder in a driver.
_HOSTILE = "a\x00b \ud800 '; %s %(x)s ? :y"


def project(name: str) -> dict[str, object]:
    return {"name": name, "created_at": 1}


def run(**changes: Any) -> dict[str, Any]:
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


def add(ledger: Ledger, name: str) -> None:
    with ledger.write() as tx:
        tx.connection.execute(_ADD, project(name))


def count(ledger: Ledger) -> int:
    return int(ask(ledger, _COUNT)[0][0])


def ask(ledger: Ledger, statement: sa.Executable) -> Sequence[Any]:
    with ledger.read() as tx:
        return tx.connection.execute(statement).all()


def test_values_and_rows_go_through_the_types_of_their_columns(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.connection.execute(sa.insert(runs), run(name=_HOSTILE, reason=None))
        tx.connection.execute(_BUDGET, {"scope": "run", "scope_id": 1, "cost_usd": 0.1, "tokens": None})
    kept = "a\ufffdb ? '; %s %(x)s ? :y"
    [found] = ask(ledger, sa.select(runs).where(runs.c.name == kept))
    assert (found.simulated, found.used_recording) == (True, False)
    assert found.spec == {"deep": [1, None, _HOSTILE]}
    assert ask(ledger, sa.select(budgets.c.cost_usd)) == [(0.1,)]


def test_errors_say_what_is_wrong(ledger: Ledger) -> None:
    twice = [{"scope": "run", "scope_id": 1}] * 2
    with pytest.raises(exc.IntegrityError, match="INSERT INTO budgets"), ledger.write() as tx:
        tx.connection.execute(_BUDGET, twice)
    with pytest.raises(Misuse, match="does not fit"), ledger.write() as tx:
        tx.connection.execute(_BUDGET, {"scope": "run", "scope_id": 2**70})
    with pytest.raises(Misuse, match="cannot be stored as JSON"), ledger.write() as tx:
        tx.connection.execute(sa.insert(runs), run(spec={"score": float("nan")}))
    with pytest.raises(LedgerError):
        ask(ledger, sa.text("SELECT nothing FROM nowhere WHERE"))


def test_a_transaction_that_reads_cannot_write_on_a_server(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    with pytest.raises(LedgerUnavailable, match="read-only"), ledger.read() as tx:
        tx.connection.execute(_ADD, project("one"))
    add(ledger, "after")
    assert count(ledger) == 1


def test_a_transaction_that_reads_sees_one_moment(ledger: Ledger) -> None:
    with ledger.read() as tx:
        before = tx.connection.execute(_COUNT).scalar()
        add(ledger, "meanwhile")
        assert tx.connection.execute(_COUNT).scalar() == before == 0
    assert count(ledger) == 1


def test_a_server_that_was_restarted_between_two_transactions_is_not_noticed(
    make_ledger: MakeLedger, postgres_server: PostgresServer
) -> None:
    ledger = make_ledger("postgresql")
    for stop in ("fast", "immediate"):
        # Several at once, so that several connections are in the pool.
        with ledger.read(), ledger.read():
            add(ledger, stop)
        postgres_server.stop(stop)
        postgres_server.start()
        with ledger.read():
            add(ledger, f"after {stop}")
    assert count(ledger) == 4


def test_a_connection_that_the_server_has_closed_is_not_used_again(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    assert count(ledger) == 0
    others = (
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database()"
    )
    with psycopg.connect(ledger.url) as other:
        other.execute(f"{others} AND pid <> pg_backend_pid()")
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
            tx.connection.execute(_ADD, project("never"))
            tx.connection.execute(sa.text("SELECT pg_sleep(60)"))

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(kind):
            wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for number in range(6):
        add(ledger, f"after {number}")
    assert count(ledger) == 6


def test_a_statement_whose_columns_have_changed_fails_once_at_the_most(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    with psycopg.connect(ledger.url, autocommit=True) as other:
        other.execute("CREATE TABLE changing (value integer)")
        try:
            asked = sa.select(sa.table("changing", sa.column("value")).c.value)
            # Often enough for the driver to prepare it.
            assert [ask(ledger, asked) for _ in range(10)] == [[]] * 10
            other.execute("ALTER TABLE changing ALTER COLUMN value TYPE text")
            with pytest.raises(LedgerError):
                ask(ledger, asked)
            assert [ask(ledger, asked) for _ in range(4)] == [[]] * 4
        finally:
            other.execute("DROP TABLE changing")


def test_an_error_that_was_swallowed_does_not_pass_for_a_commit(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    with pytest.raises(exc.PendingRollbackError), ledger.write() as tx, suppress(exc.IntegrityError):
        tx.connection.execute(_ADD, [project("one"), project("one")])
    assert count(ledger) == 0


def test_statements_stay_prepared_from_one_transaction_to_the_next(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("postgresql")
    prepared = sa.text("SELECT count(*) FROM pg_prepared_statements")
    for number in range(8):
        assert count(ledger) == number
        add(ledger, str(number))
    assert ask(ledger, prepared)[0][0] >= 2
