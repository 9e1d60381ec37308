from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.ledger import Ledger
from ratchet.ledger.tables import processes
from ratchet.runtime.processes import register
from tests.cli.conftest import Ratchet
from tests.cli.program import Program


def check(done: object, name: str) -> dict[str, str]:
    return next(each for each in done.json["checks"] if each["name"] == name)  # type: ignore[attr-defined]


def test_doctor_finds_a_healthy_ledger(ratchet: Ratchet, ledger: Ledger) -> None:
    done = ratchet("doctor", "--json")
    assert done.code == 0, done.out
    assert done.json["ok"] is True
    assert check(done, "ledger")["status"] == "ok"
    assert check(done, "ledger schema")["status"] == "ok"
    assert check(done, "ledger processes")["detail"] == "0 alive, 0 dead"
    detail = check(done, "ledger")["detail"]
    assert ("journal mode wal" in detail) if ledger.path else ("answers in" in detail)
    names = {each["name"] for each in done.json["checks"]}
    assert {"python", "git", "disk space", "disk writes", "sandbox landlock", "engine codex"} <= names


@pytest.mark.no_ledger
def test_doctor_makes_no_ledger(ratchet: Ratchet, home: Path) -> None:
    done = ratchet("doctor", "--json")
    assert done.code == 0
    found = [
        each for each in done.json["checks"] if each["name"].startswith("ledger") and each["status"] == "warn"
    ]
    assert found[-1]["fix"] == "run `ratchet init`"
    assert not home.exists()
    assert ratchet("runs", "list").code == 2


@pytest.mark.no_ledger
def test_doctor_shows_what_is_promised_and_makes_nothing(ratchet: Ratchet, home: Path) -> None:
    done = ratchet("doctor", "--security", "--json")
    assert done.code == 0
    assert done.json["boundaries"][0]["name"] == "Foreign code"
    assert not home.exists()
    assert ratchet("doctor", "--security", "--attack").code == 2


@pytest.mark.no_ledger
def test_doctor_tells_people_how_to_mend_each_finding(ratchet: Ratchet) -> None:
    done = ratchet("doctor")
    assert "to fix: run `ratchet init`" in done.out
    assert "warnings, 0 failed" in done.out.splitlines()[-1]


def test_doctor_sees_living_and_dead_processes(ratchet: Ratchet, ledger: Ledger) -> None:
    with ledger.write() as tx:
        register(tx, "living", "worker", 1)
        register(tx, "silent", "worker", 1)
        long_ago = int(time.time() * 1000) - 3_600_000
        tx.connection.execute(sa.update(processes).where(processes.c.id == "silent").values(beat_at=long_ago))
    found = check(ratchet("doctor", "--json"), "ledger processes")
    assert (found["status"], found["detail"]) == ("warn", "1 alive, 1 dead: silent")
    assert "ratchet worker" in found["fix"]


@pytest.mark.soak
@pytest.mark.parametrize("damage", [b"no database at all", None])
def test_doctor_fails_on_a_damaged_file(plain_program: Program, damage: bytes | None) -> None:
    plain_program.make_home()
    file = plain_program.home / "ledger.db"
    content = bytearray(file.read_bytes())
    content[: len(damage or b"")] = damage or b""
    if damage is None:
        content[4096 * 3 : 4096 * 9] = b"\xff" * (4096 * 6)
    file.write_bytes(content)
    done = plain_program("doctor", "--json")
    failed = [each for each in done.json["checks"] if each["status"] == "fail"]
    assert done.code == 1
    assert [each["name"].split()[0] for each in failed] == ["ledger"]
    assert "restore" in failed[0]["fix"]


@pytest.mark.soak
def test_doctor_fails_on_a_newer_schema_and_leaves_it(plain_program: Program) -> None:
    plain_program.make_home()
    database = sqlite3.connect(plain_program.home / "ledger.db")
    with database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    done = plain_program("doctor", "--json")
    assert done.code == 1
    assert check(done, "ledger schema")["fix"] == "upgrade Ratchet"


@pytest.mark.soak
def test_doctor_fails_on_a_database_that_does_not_answer(plain_program: Program) -> None:
    done = plain_program("doctor", "--json", "--database-url", "postgresql://me:hush@127.0.0.1:1/none")
    assert done.code == 1
    assert check(done, "ledger")["status"] == "fail"
    assert "hush" not in done.out + done.err
