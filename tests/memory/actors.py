"""What other processes do to a memory; each says on stdout what is done."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratchet.kernel import RatchetError
from ratchet.memory.sqlite import SqliteMemory, reembed_file

ROOT = Path(__file__).parents[2]


class Letters:
    """A small embedder that needs no model: how often each letter is in a text."""

    def __init__(self, name: str = "letters", dimension: int = 26) -> None:
        self.name = name
        self.dimension = dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text.lower():
                row[ord(letter) % self.dimension] += 1
            row /= max(float(np.linalg.norm(row)), 1e-12)
        return rows


def say(*words: object) -> None:
    print(*words, flush=True)


def plan(name: str) -> Iterator[tuple[str, str | None]]:
    """Endless changes: a key, and the text that is stored under it, or nothing to delete it."""
    for number in itertools.count():
        yield f"{name}/{number}", f"{name} number{number}"
        if number % 3 == 0:
            yield f"{name}/{number}", f"{name} changed{number}"
        if number % 7 == 6:
            yield f"{name}/{number}", None


def carry_out(path: str, name: str) -> None:
    memory = SqliteMemory(Path(path), Letters())
    ids: dict[str, str] = {}
    for key, text in plan(name):
        if text is None:
            memory.delete(id=ids[key])
        else:
            ids[key] = memory.store(text, kind="work", tags=[name], key=key)
        say("done")


def after(name: str, changes: int) -> set[str]:
    """The texts that are there after so many changes of the plan."""
    texts = dict(itertools.islice(plan(name), changes))
    return {text for text in texts.values() if text is not None}


def store_some(path: str, name: str, count: str) -> None:
    memory = SqliteMemory(Path(path), Letters())
    say("open")
    for number in range(int(count)):
        memory.store(f"{name} number{number}", kind="work", tags=[name])
        assert memory.find(f"{name} number{number}", tags=[name])
    memory.close()


def reembed_forever(path: str) -> None:
    for number in itertools.count():
        reembed_file(Path(path), Letters(f"letters-{number % 2}", 26 + number % 2))
        say("done", number)


def start(act: Any, *arguments: object) -> subprocess.Popen[str]:
    program = f"import sys; from tests.memory import actors; actors.{act.__name__}(*sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


@contextlib.contextmanager
def started(act: Any, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = start(act, *arguments)
    assert process.stdout is not None
    with process.stdout:
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def kill_after(process: subprocess.Popen[str], lines: int) -> int:
    """End it at once when it has said so many lines, whatever it is doing. How many it had said by then."""
    assert process.stdout is not None
    said = "".join(process.stdout.readline() for _ in range(lines))
    process.kill()
    return (said + process.stdout.read()).count("\n")


def damage(path: Path) -> list[Any]:
    """Everything that is wrong with the file; nothing for a sound one."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        checks = (
            "SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
            "PRAGMA foreign_key_check",
            "SELECT number FROM entries WHERE number NOT IN (SELECT number FROM vectors)",
            "SELECT number FROM entries WHERE number NOT IN (SELECT rowid FROM words)",
            "SELECT number FROM entries JOIN deleted USING (number)",
            "SELECT number FROM entries, state WHERE entries.change > state.change",
            "SELECT number FROM vectors, state WHERE length(vector) <> 4 * dimension",
        )
        return [row for check in checks for row in connection.execute(check)]


def fill_disk(directory: Path) -> dict[str, Any]:
    """Store until the disk is full, look at what is left, make room, and store again."""
    ballast = directory / "ballast"
    ballast.write_bytes(b"\0" * 1_000_000)
    memory = SqliteMemory(directory / "memory.db", Letters())
    stored = 0
    try:
        while True:
            memory.store(f"number{stored} " + "x" * 50_000, kind="work")
            stored += 1
    except RatchetError as error:
        full = told(error)
    kept = len(memory.find("number", limit=10_000))
    ballast.unlink()
    memory.store("one more", kind="work")
    after = len(memory.find("number", limit=10_000))
    memory.close()
    return {
        "full": full,
        "stored": stored,
        "kept": kept,
        "after": after,
        "damage": damage(directory / "memory.db"),
    }


def try_storing(directory: Path) -> dict[str, str]:
    try:
        memory = SqliteMemory(directory / "memory.db", Letters())
        memory.store("text", kind="work")
        memory.close()
    except RatchetError as error:
        return told(error)
    return {"error": "none"}


def told(error: RatchetError) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error), "hint": str(error.hint)}
