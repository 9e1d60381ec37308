"""Which connection a transaction gets."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.ledger import Ledger, Transaction


def test_one_transaction_after_the_other_has_the_same_connection(ledger: Ledger) -> None:
    used = set()
    for _ in range(5):
        with ledger.write() as tx:
            used.add(id(tx.connection.connection.dbapi_connection))
        with ledger.read() as tx:
            used.add(id(tx.connection.connection.dbapi_connection))
    assert len(used) == 1


def test_transactions_at_once_have_their_own(ledger: Ledger) -> None:
    with ledger.read() as one, ledger.read() as two, ledger.write() as three:
        assert len({id(tx.connection) for tx in (one, two, three)}) == 3

    def read() -> None:
        with ledger.read() as tx:
            barrier.wait(30)
            found.append(tx.connection.execute(sa.text("SELECT 1")).scalar_one())

    # More of them than are kept.
    barrier, found = threading.Barrier(12), []
    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 12


def test_one_that_failed_is_not_used_again_with_what_it_was_doing(ledger: Ledger) -> None:
    for _ in range(3):
        with pytest.raises(KeyError), ledger.write() as tx:
            _fail(tx)
        with pytest.raises(KeyError), ledger.read():
            raise KeyError
        with ledger.write() as tx:
            assert tx.connection.execute(sa.text("SELECT count(*) FROM events")).scalar_one() == 0


def test_a_closed_ledger_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(f"sqlite:///{path}", tmp_path / "artifacts") as ledger:
        for _ in range(3):
            with ledger.read(), ledger.read():
                pass
        assert open_files(path)
    assert not open_files(path)


def _fail(tx: Transaction) -> None:
    tx.event("never")
    raise KeyError


def open_files(path: Path) -> list[str]:
    links = Path("/proc/self/fd").iterdir()
    found = []
    for link in links:
        try:
            found.append(str(link.readlink()))
        except FileNotFoundError:  # the one that lists them
            continue
    return [each for each in found if each.startswith(str(path))]
