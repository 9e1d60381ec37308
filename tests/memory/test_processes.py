"""Several processes on one file, and processes that are killed."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.memory import WrongEmbedder
from ratchet.memory import sqlite_rows as rows
from ratchet.memory.memory import MemoryFilter
from ratchet.memory.sqlite import SqliteMemory
from tests.memory.actors import (
    Letters,
    after,
    carry_out,
    damage,
    kill_after,
    reembed_forever,
    start,
    started,
    store_some,
)


@pytest.mark.soak
def test_processes_that_make_the_file_at_once_share_it(path: Path) -> None:
    processes = [start(store_some, path, f"p{name}", 20) for name in range(4)]
    assert [process.communicate()[0] for process in processes] == ["open\n"] * 4
    assert [process.returncode for process in processes] == [0] * 4
    with contextlib.closing(SqliteMemory(path, Letters())) as memory:
        assert len(memory.find("number", limit=1000)) == 80
        assert len(memory.words("p2", limit=1000)) == 20
    assert damage(path) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_what_was_said_to_be_done_outlasts_a_kill(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for turn in ("one", "two", "three"):
        with started(carry_out, path, turn) as process:
            done = kill_after(process, chance.randrange(5, 60))
        assert damage(path) == []
        with contextlib.closing(SqliteMemory(path, Letters())) as memory:
            found = {each.entry.text for each in memory.find("number", tags=[turn], limit=10_000)}
            # The last change may have been made and not been said any more.
            assert found in (after(turn, done), after(turn, done + 1))
            assert {entry.text for entry in memory.entries(tags=[turn], limit=10_000)} == found
            assert {each.entry.text for each in memory.words(turn, limit=10_000)} == found


@pytest.mark.soak
def test_a_killed_reembedding_leaves_one_embedder_for_all(path: Path) -> None:
    with contextlib.closing(SqliteMemory(path, Letters("letters-1", 27))) as memory:
        for number in range(300):
            memory.store(f"number{number}", kind="work")
    for pause in (1, 2, 3):
        with started(reembed_forever, path) as process:
            kill_after(process, pause)
        assert damage(path) == []
        with contextlib.closing(opened_with_any(path)) as memory:
            assert len(memory.find("number7", limit=1000)) == 300


def opened_with_any(path: Path) -> SqliteMemory:
    try:
        return SqliteMemory(path, Letters("letters-0", 26))
    except WrongEmbedder:
        return SqliteMemory(path, Letters("letters-1", 27))


def test_a_search_reads_only_what_changed_since_the_last(path: Path) -> None:
    with contextlib.closing(SqliteMemory(path, Letters())) as memory:
        ids = [memory.store(f"entry {number}", kind="work", key=str(number)) for number in range(50)]
        with contextlib.closing(sqlite3.connect(path)) as other:
            seen = rows.state(other).change
            memory.store("entry 7 again", kind="work", key="7")
            memory.delete(id=ids[3])
            assert [number for number, *_ in rows.vectors_since(other, seen, 26)] == [8]
            assert list(rows.deleted_since(other, seen)) == [4]


def test_storing_the_same_under_a_key_changes_nothing(path: Path) -> None:
    with contextlib.closing(SqliteMemory(path, Letters())) as memory:
        memory.store("text", kind="work", tags=["a", "b"], data={"x": 1}, key="k")
        with contextlib.closing(sqlite3.connect(path)) as other:
            seen = rows.state(other).change
            memory.store("text", kind="work", tags=["b", "a"], data={"x": 1}, key="k")
            assert rows.state(other).change == seen


def test_a_process_that_slept_through_old_deletions_reads_everything_again(path: Path) -> None:
    memory = SqliteMemory(path, Letters())
    for number in range(10):
        memory.store(f"entry {number}", kind="work", tags=[str(number % 2)])
    assert len(memory.find("entry")) == 10
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("PRAGMA foreign_keys = ON")
        rows.delete(other, MemoryFilter(tags=frozenset(["0"])), kept_changes=0)
        assert list(rows.deleted_since(other, 0)) == []
    assert sorted(each.entry.text for each in memory.find("entry")) == [f"entry {n}" for n in (1, 3, 5, 7, 9)]
    memory.close()


def test_a_memory_is_not_used_after_a_fork(path: Path) -> None:
    memory = SqliteMemory(path, Letters())
    child = os.fork()
    if child == 0:
        try:
            memory.entries()
        except Misuse:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    memory.store("text", kind="work")
    memory.close()
