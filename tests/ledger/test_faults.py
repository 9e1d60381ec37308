"""Disks that are full or read-only, and clocks and databases that misbehave."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import Ledger
from ratchet.ledger.database import explain
from tests.ledger import disk_actors
from tests.ledger.conftest import MakeLedger
from tests.ledger.disks import READ_ONLY, SMALL, on_disk
from tests.postgres import PostgresServer


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    directory = tmp_path / "disk"
    directory.mkdir()
    return directory


def test_a_ledger_in_a_read_only_directory_says_what_to_do(disk: Path) -> None:
    assert disk_actors.try_open(disk) == {"error": "none"}
    found = on_disk(READ_ONLY, disk, disk_actors.try_open)
    assert found["error"] == "LedgerUnavailable"
    assert "writable" in found["hint"]


def test_a_ledger_that_cannot_be_made_says_what_to_do(disk: Path) -> None:
    found = on_disk(READ_ONLY, disk, disk_actors.try_open)
    assert found["error"] == "LedgerUnavailable"
    assert "writable" in found["hint"]


def test_a_full_disk_loses_nothing_that_was_committed_and_writing_goes_on_when_there_is_room(
    disk: Path,
) -> None:
    found = on_disk(SMALL, disk, disk_actors.fill_disk, size="6m")
    assert found["full"]["error"] == "LedgerUnavailable"
    assert "is full" in found["full"]["message"]
    assert "nothing that was committed is lost" in found["full"]["hint"]
    assert found["committed"] > 20
    assert (found["kept"], found["after"]) == (found["committed"], found["committed"] + 1)
    assert found["check"] == []


def test_a_full_artifact_store_keeps_no_half_file_and_no_row_for_it(disk: Path) -> None:
    found = on_disk(SMALL, disk, disk_actors.fill_store, size="4m")
    assert "No space left" in found["full"]["message"]
    assert "free some space" in found["full"]["hint"]
    assert found["put"] >= 1
    assert (found["left"], found["check"], found["rows"]) == ([], [], found["put"] + 1)


@pytest.mark.soak
def test_a_backup_that_does_not_fit_leaves_the_older_one(disk: Path) -> None:
    found = on_disk(SMALL, disk, disk_actors.fill_backup, size="2m")
    assert "No space left" in found["full"]["message"]
    assert found["older is intact"]
    assert found["files"] == ["backup.tar.gz"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("could not extend file: No space left on device", "is full"),
        ("cannot execute INSERT in a read-only transaction", "cannot be written"),
        ("database is locked", "stayed locked for 30 s"),
        ("canceling statement due to lock timeout", "stayed locked for 30 s"),
        ("deadlock detected", "waited for each other"),
        ("server closed the connection unexpectedly", "did not answer"),
    ],
)
def test_what_a_driver_says_is_told_with_what_to_do(text: str, says: str) -> None:
    error = explain(exc.OperationalError("INSERT", {}, Exception(text)), "postgresql://me:hush@host/db")
    assert isinstance(error, LedgerUnavailable)
    assert says in str(error)
    assert text in str(error)
    assert error.hint
    assert "hush" not in str(error)


def test_a_database_that_goes_away_is_an_outage_and_work_goes_on_when_it_is_back(
    make_ledger: MakeLedger, postgres_server: PostgresServer
) -> None:
    ledger = make_ledger("postgresql")
    write(ledger)
    postgres_server.stop("immediate")
    with pytest.raises(LedgerUnavailable, match="did not answer"):
        write(ledger)
    postgres_server.start()
    write(ledger)
    with ledger.read() as tx:
        assert tx.connection.execute(sa.text("SELECT count(*) FROM events")).scalar() == 2


def test_a_database_that_goes_away_within_a_transaction_takes_all_of_it_along(
    make_ledger: MakeLedger, postgres_server: PostgresServer
) -> None:
    ledger = make_ledger("postgresql")

    def write_while_it_stops() -> None:
        with ledger.write() as tx:
            tx.event("half")
            tx.connection.execute(sa.text("INSERT INTO projects (name, created_at) VALUES ('half', 1)"))
            postgres_server.stop("immediate")

    with pytest.raises(LedgerUnavailable):
        write_while_it_stops()
    postgres_server.start()
    with ledger.read() as tx:
        assert tx.connection.execute(sa.text("SELECT count(*) FROM events")).scalar() == 0
        assert tx.connection.execute(sa.text("SELECT count(*) FROM projects")).scalar() == 0


def write(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.event("written")
