"""The file: damage, other versions, other embedders, disks that refuse, and how much is looked at."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.memory import MemoryCorrupt, MemoryTooNew, MemoryUnavailable, WrongEmbedder
from ratchet.memory.sqlite import SqliteMemory, reembed_file
from ratchet.memory.sqlite_file import explain
from tests.ledger.disks import READ_ONLY, SMALL, on_disk
from tests.memory import actors
from tests.memory.actors import Letters


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    directory = tmp_path / "disk"
    directory.mkdir()
    return directory


def fill(path: Path, count: int = 3) -> None:
    with contextlib.closing(SqliteMemory(path, Letters())) as memory:
        for number in range(count):
            memory.store(f"entry number{number} " + "x" * 500, kind="work", tags=["t"])


def test_a_file_that_is_no_database_is_corrupt(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 500)
    with pytest.raises(MemoryCorrupt, match=r"memory\.db is damaged") as raised:
        SqliteMemory(path, Letters())
    assert "move the file away" in str(raised.value.hint)


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE precious (x)")
    before = path.read_bytes()
    with pytest.raises(MemoryCorrupt, match="another program"):
        SqliteMemory(path, Letters())
    assert path.read_bytes() == before


@pytest.mark.parametrize("table", ["entries", "vectors", "tags", "words_data", "state"])
def test_pages_that_were_overwritten_are_corrupt(path: Path, table: str) -> None:
    fill(path, 200)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [root] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(MemoryCorrupt):
        use(path)


def use(path: Path) -> None:
    with contextlib.closing(SqliteMemory(path, Letters())) as memory:
        memory.find("entry")
        memory.words("number7")
        memory.entries(tags=["t"])


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE vectors SET vector = x'00' WHERE number = 2",
        "UPDATE entries SET data = 'not json' WHERE number = 2",
        "DELETE FROM state",
        "DROP TABLE tags",
    ],
)
def test_rows_that_make_no_sense_are_corrupt(path: Path, harm: str) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute(harm)
    with pytest.raises(MemoryCorrupt):
        use(path)


def test_a_newer_file_is_refused(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(MemoryTooNew, match="version 99") as raised:
        SqliteMemory(path, Letters())
    assert "update Ratchet" in str(raised.value.hint)


def test_an_empty_file_becomes_a_memory(path: Path) -> None:
    path.touch()
    fill(path)
    use(path)


def test_a_directory_in_its_place_is_told(path: Path) -> None:
    path.mkdir()
    with pytest.raises(MemoryUnavailable, match="cannot be opened"):
        SqliteMemory(path, Letters())


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MemoryUnavailable, match="cannot be opened"):
        SqliteMemory(tmp_path / "file" / "memory.db", Letters())


@pytest.mark.soak
def test_a_full_disk_loses_nothing_that_was_stored(disk: Path) -> None:
    found = on_disk(SMALL, disk, actors.fill_disk, size="5m")
    assert found["full"]["error"] == "MemoryUnavailable"
    assert "full or failing" in found["full"]["message"]
    assert "nothing that was stored is lost" in found["full"]["hint"]
    assert found["stored"] > 5
    assert (found["kept"], found["after"]) == (found["stored"], found["stored"] + 1)
    assert found["damage"] == []


@pytest.mark.soak
def test_a_read_only_directory_is_told(disk: Path) -> None:
    assert actors.try_storing(disk) == {"error": "none"}
    found = on_disk(READ_ONLY, disk, actors.try_storing)
    assert found["error"] == "MemoryUnavailable"
    assert "writable" in found["hint"]


def test_a_lock_that_is_never_given_back_is_told() -> None:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    told = explain(error, Path("memory.db"))
    assert isinstance(told, MemoryUnavailable)
    assert "stayed locked for 30 s" in str(told)


def test_another_embedder_is_refused_until_the_vectors_are_made_anew(path: Path) -> None:
    fill(path)
    other = Letters("other", 13)
    with pytest.raises(WrongEmbedder, match="made by letters, not by other") as raised:
        SqliteMemory(path, other)
    assert "ratchet memory reembed" in str(raised.value.hint)
    assert reembed_file(path, other) == 3
    with contextlib.closing(SqliteMemory(path, other)) as memory:
        assert len(memory.find("entry")) == len(memory.words("entry")) == 3
    assert actors.damage(path) == []


def test_a_memory_that_is_open_notices_that_its_vectors_were_made_anew(path: Path) -> None:
    fill(path)
    with contextlib.closing(SqliteMemory(path, Letters())) as memory:
        memory.find("entry")
        reembed_file(path, Letters("other", 13))
        with pytest.raises(WrongEmbedder):
            memory.find("entry")
        with pytest.raises(WrongEmbedder):
            memory.store("entry", kind="work")
        assert len(memory.words("entry")) == 3


def test_of_more_equals_than_wanted_the_oldest_are_given(path: Path) -> None:
    with contextlib.closing(SqliteMemory(path, Letters())) as memory:
        ids = [memory.store("the same", kind="work") for _ in range(40)]
        memory.delete(id=ids.pop(0))
        assert [each.entry.id for each in memory.find("the same", limit=5)] == ids[:5]
        assert [each.entry.id for each in memory.words("same", limit=5)] == ids[:5]


def test_a_word_that_most_have_does_not_hide_a_rare_one(path: Path) -> None:
    with contextlib.closing(SqliteMemory(path, Letters())) as memory:
        first = memory.store("the needle", kind="work")
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)"
                " INSERT INTO entries (id, kind, text, data, created_at, change)"
                " SELECT i, 'work', 'the hay', '{}', 0, 1 FROM n"
            )
        assert [each.entry.id for each in memory.words("the needle")] == [first]
        assert len(memory.words("the", limit=20)) == 20
        assert memory.words("the", kind="absent") == []


def test_closing_lets_go_of_the_file(path: Path) -> None:
    memory = SqliteMemory(path, Letters())
    memory.store("text", kind="work")
    memory.close()
    assert not path.with_name("memory.db-wal").exists()
    with pytest.raises(Misuse, match="closed"):
        memory.find("text")
