from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from ratchet.ledger import Ledger
from ratchet.ledger.projects import add_project, put_ciphertext
from ratchet.runtime.processes import register
from tests.cli.conftest import Ratchet
from tests.cli.program import Program


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    with ledger.write(actor="test") as tx:
        tx.event("test.kept", message="hello")
        ledger.artifacts.put(tx, b"an output" * 10_000, name="out.txt")
    return ledger


@pytest.mark.soak
def test_a_backup_is_written_and_restored_over_what_came_later(
    ratchet: Ratchet, filled: Ledger, tmp_path: Path
) -> None:
    file = tmp_path / "copy.tar.gz"
    taken = ratchet("ledger", "backup", str(file), "--json")
    assert taken.code == 0, taken.err
    assert taken.json["path"] == str(file)
    assert (taken.json["rows"]["events"], taken.json["artifacts"], taken.json["left_out"]) == (1, 1, [])
    with filled.write(actor="test") as tx:
        tx.event("test.later")
    refused = ratchet("ledger", "restore", str(file))
    assert refused.code == 1
    assert "--force" in refused.err
    done = ratchet("ledger", "restore", str(file), "--force")
    assert done.code == 0, done.err
    assert done.out.startswith("The ledger is as it was at ")
    types = [each["type"] for each in ratchet("events", "--json").lines]
    assert "test.kept" in types
    assert "test.later" not in types


@pytest.mark.soak
def test_a_backup_is_restored_where_there_is_no_ledger_yet(
    ratchet: Ratchet, filled: Ledger, tmp_path: Path
) -> None:
    file = tmp_path / "copy.tar.gz"
    ratchet("ledger", "backup", str(file))
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Program(tmp_path / "elsewhere")
    done = elsewhere("ledger", "restore", str(file), "--json")
    assert done.code == 0, done.err
    assert done.json["artifacts"] == 1
    assert elsewhere("events", "--json", "--type", "test.kept").lines[0]["message"] == "hello"


@pytest.mark.soak
def test_a_home_is_moved_with_its_keys_and_a_check_says_when_they_are_missing(
    ratchet: Ratchet, filled: Ledger, tmp_path: Path
) -> None:
    with filled.write(actor="test") as tx:
        key = Fernet.generate_key()
        put_ciphertext(tx, add_project(tx, "work"), "TOKEN", Fernet(key).encrypt(b"value").decode())
    (filled.artifacts.root.parent / "secret.key").write_bytes(key)
    for option, code, says in (("--with-keys", 0, "No damage found."), (None, 1, "secret.key is missing")):
        file, place = tmp_path / f"{option}.tar.gz", tmp_path / f"home{option}"
        taken = ratchet("ledger", "backup", str(file), *([option] if option else []))
        assert taken.code == 0, taken.err
        elsewhere = Program(tmp_path)
        done = elsewhere("--home", str(place), "ledger", "restore", str(file))
        assert done.code == 0, done.err
        checked = elsewhere("--home", str(place), "ledger", "check")
        assert (checked.code, says in checked.out) == (code, True)
    misused = ratchet("ledger", "backup", str(tmp_path / "x"), "--ledger-only", "--with-keys")
    assert misused.code == 2


def test_a_directory_keeps_the_newest_backups_and_each_is_restored_by_its_number(
    ratchet: Ratchet, filled: Ledger, tmp_path: Path
) -> None:
    place = str(tmp_path / "backups")
    first = ratchet("backup", place, "--json")
    assert first.code == 0, first.err
    with filled.write(actor="test") as tx:
        tx.event("test.later")
    second = ratchet("backup", place, "--keep", "2")
    assert "rows, 1 artifacts and" in second.out
    assert "of it new." in second.out
    assert ratchet("restore", place, "--number", "1", "--force").code == 0
    assert "test.later" not in [each["type"] for each in ratchet("events", "--json").lines]
    third = ratchet("backup", place, "--keep", "2", "--json").json
    assert [name[:6] for name in third["removed"]] == ["000001"]
    assert third["bytes"] < first.json["bytes"]
    missing = ratchet("restore", place, "--number", "1", "--force")
    assert (missing.code, "there are: 000002-" in missing.err) == (2, True)


def test_restore_refuses_while_somebody_works(ratchet: Ratchet, filled: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "copy.tar.gz"
    ratchet("ledger", "backup", str(file))
    with filled.write() as tx:
        register(tx, "busy-bee", "worker", 1)
    done = ratchet("ledger", "restore", str(file), "--force")
    assert done.code == 1
    assert "busy-bee" in done.err


@pytest.mark.soak
def test_restore_of_a_file_that_is_not_there_is_misuse_and_makes_no_ledger(
    plain_program: Program,
) -> None:
    done = plain_program("ledger", "restore", "nowhere.tar.gz")
    assert done.code == 2
    assert "nowhere.tar.gz" in done.err
    assert not plain_program.home.exists()


def test_restore_of_something_else_is_told(ratchet: Ratchet, ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("dear ledger")
    done = ratchet("ledger", "restore", str(file))
    assert done.code == 1
    assert "letter.txt" in done.err
    assert "unexpected" not in done.err


@pytest.mark.soak
def test_restore_over_a_damaged_file_says_to_move_it_away(plain_program: Program) -> None:
    plain_program.make_home()
    plain_program("ledger", "backup", "copy.tar.gz")
    (plain_program.home / "ledger.db").write_bytes(b"this is no database" * 1000)
    done = plain_program("ledger", "restore", "copy.tar.gz", "--force")
    assert done.code == 1
    assert f"move {plain_program.home / 'ledger.db'} away" in done.err


def test_check_finds_nothing_in_a_healthy_ledger(ratchet: Ratchet, filled: Ledger) -> None:
    assert ratchet("ledger", "check").out == "No damage found.\n"
    assert ratchet("ledger", "check", "--json").json == {"ok": True, "findings": []}


@pytest.mark.soak
def test_check_finds_a_lost_artifact_and_fails(ratchet: Ratchet, filled: Ledger) -> None:
    for _, file in list(filled.artifacts.stored()):
        file.unlink()
    done = ratchet("ledger", "check")
    assert done.code == 1
    assert "is missing" in done.out
    assert "to fix:" in done.out
    assert ratchet("ledger", "check", "--json").json["ok"] is False


def test_a_backup_without_a_lost_artifact_says_so(ratchet: Ratchet, filled: Ledger, tmp_path: Path) -> None:
    for _, file in list(filled.artifacts.stored()):
        file.unlink()
    done = ratchet("ledger", "backup", str(tmp_path / "copy.tar.gz"), "--json")
    assert done.code == 0
    assert len(done.json["left_out"]) == 1
    assert "warning: 1 artifacts are not in it" in done.err


def test_vacuum_removes_old_files_that_nobody_names(ratchet: Ratchet, filled: Ledger) -> None:
    file = filled.artifacts.path("0" * 64)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 2048)
    long_ago = time.time() - 7200
    os.utime(file, (long_ago, long_ago))
    done = ratchet("ledger", "vacuum", "--json")
    assert done.code == 0, done.err
    assert done.json["artifacts"] == {"rows": 0, "files": 1, "bytes": 2048}
    assert "given back" in ratchet("ledger", "vacuum").out
    assert len(list(filled.artifacts.stored())) == 1


def test_vacuum_obeys_the_configured_retention(ratchet: Ratchet, filled: Ledger, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "ratchet.toml").write_text("[artifacts]\nretention_days = 1\n")
    assert ratchet("ledger", "vacuum", "--json").json["artifacts"]["rows"] == 0
    with filled.write() as tx:
        tx.connection.exec_driver_sql("UPDATE artifacts SET created_at = 0")
    assert ratchet("ledger", "vacuum", "--json").json["artifacts"]["rows"] == 1
