"""The file of a memory: its tables, how it is opened, and what SQLite's errors mean."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ratchet.files import turn_on_wal
from ratchet.kernel import Missing, Misuse, RatchetError
from ratchet.memory.memory import MemoryCorrupt, MemoryTooNew, MemoryUnavailable

VERSION = 1
BUSY_SECONDS = 30.0
# "RatM", so that no other program's file is taken for a memory.
_APPLICATION = 0x5261744D

# `change` grows with every write, and each row keeps that of its last one: a process reads only what is newer than
# what it has seen. What was deleted leaves its number behind until it is older than `forgotten`. The triggers keep the
# index of words and those numbers right within the transaction that changes an entry. Vectors have a table of their
# own: they are five times as large as the rest, which is read more often.
_SCHEMA = """
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    embedder TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    change INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
);
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    data TEXT NOT NULL,
    scope TEXT,
    created_at INTEGER NOT NULL,
    change INTEGER NOT NULL
);
CREATE INDEX entries_by_kind ON entries (kind);
CREATE INDEX entries_by_scope ON entries (scope) WHERE scope IS NOT NULL;
CREATE INDEX entries_by_change ON entries (change);
CREATE TABLE tags (
    tag TEXT NOT NULL,
    number INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,
    PRIMARY KEY (tag, number)
) WITHOUT ROWID;
CREATE INDEX tags_by_number ON tags (number);
CREATE TABLE vectors (number INTEGER PRIMARY KEY REFERENCES entries ON DELETE CASCADE, vector BLOB NOT NULL);
CREATE TABLE deleted (number INTEGER PRIMARY KEY, change INTEGER NOT NULL);
CREATE INDEX deleted_by_change ON deleted (change);
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = 'entries', content_rowid = 'number', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, row);
CREATE TRIGGER entry_added AFTER INSERT ON entries BEGIN
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER entry_changed AFTER UPDATE OF text ON entries BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER entry_deleted AFTER DELETE ON entries BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
    INSERT INTO deleted SELECT old.number, change FROM state;
END;
"""


def open_file(path: Path, embedder: str, dimension: int) -> sqlite3.Connection:
    """A connection to the memory at `path`, made for this embedder when it is not there yet."""
    with translated(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(path, str(error)) from error
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            if not _is_memory(connection, path):
                turn_on_wal(connection, BUSY_SECONDS)
                _create(connection, path, embedder, dimension)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def made_with(path: Path) -> str | None:
    """The name of the embedder of the memory at `path`; nothing where there is none yet."""
    if not path.exists():
        return None
    with translated(path), contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
        if not _is_memory(connection, path):
            return None
        [name] = connection.execute("SELECT embedder FROM state").fetchone()
        return str(name)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error


def explain(error: sqlite3.Error, path: Path) -> RatchetError:
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return _damaged(path, str(error))
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return MemoryUnavailable(
                f"the disk of {path} is full or failing: {error}",
                hint="free some space, then try again: nothing that was stored is lost",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return _unwritable(path, str(error))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return MemoryUnavailable(
                f"{path} stayed locked for {BUSY_SECONDS:g} s: {error}",
                hint="another program holds it; try again when it is done",
            )
        case sqlite3.SQLITE_TOOBIG:
            return Misuse(f"a value is too large for {path}: {error}")
    if "no such module" in str(error):
        return Missing(
            f"this Python's SQLite has no full-text search: {error}",
            hint="use a Python whose sqlite3 has FTS5; every usual build does",
        )
    return _damaged(path, str(error))


def _is_memory(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the tables are there. Raises when they are newer, or when something else is."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if application == _APPLICATION:
        if version > VERSION:
            raise MemoryTooNew(
                f"{path} has version {version} of the tables; this Ratchet knows {VERSION}",
                hint="update Ratchet, or move the file away to start again",
            )
        return True
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or version or tables:
        raise _damaged(path, "it is the database of another program")
    return False


def _create(connection: sqlite3.Connection, path: Path, embedder: str, dimension: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been first while this one waited.
        if not _is_memory(connection, path):
            for statement in _statements(_SCHEMA):
                connection.execute(statement)
            connection.execute("INSERT INTO state VALUES (1, ?, ?, 0, 0)", (embedder, dimension))
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _statements(script: str) -> Iterator[str]:
    # Not `executescript`: that commits before it begins.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _damaged(path: Path, why: str) -> MemoryCorrupt:
    return MemoryCorrupt(
        f"{path} is damaged or is not a memory: {why}",
        hint="put a copy of it back, or move the file away to start again",
    )


def _unwritable(path: Path, why: str) -> MemoryUnavailable:
    return MemoryUnavailable(
        f"{path} cannot be opened or written: {why}",
        hint="its directory must exist and both must be writable for this user",
    )
