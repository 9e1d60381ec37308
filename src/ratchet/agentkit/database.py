"""The SQLite file of a state: one row per top-level key, and what takes every change back.

A list that grows by `append` or `add` has a row per item, so that neither has to read it. History is kept backwards:
each change notes what its keys were before, the whole value or the steps back to it, whichever is shorter.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ratchet.agentkit.errors import NoSuchChange, StateBusy, StateDamaged, StateInvalid
from ratchet.agentkit.files import opened, sync_directory
from ratchet.agentkit.values import MOST_BYTES, difference, follow, text_of

FILE = "state.db"
_VERSION = 1
_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # `size` lies before `value`, so that it is read without it. `kind`: the value itself, or what its items are.
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, kind INTEGER NOT NULL,"
    " size INTEGER NOT NULL, value TEXT)",
    # Found by an index, which stays small however long the values are.
    "CREATE TABLE items (id INTEGER PRIMARY KEY, key TEXT NOT NULL, place INTEGER NOT NULL, digest BLOB,"
    " value TEXT NOT NULL, UNIQUE (key, place))",
    "CREATE INDEX items_by_digest ON items (key, digest) WHERE digest IS NOT NULL",
    "CREATE TABLE changes (number INTEGER PRIMARY KEY, at TEXT NOT NULL, by TEXT, recovered INTEGER NOT NULL,"
    " restored INTEGER)",
    "CREATE TABLE undo (id INTEGER PRIMARY KEY, key TEXT NOT NULL, number INTEGER NOT NULL,"
    " weight INTEGER NOT NULL, whole INTEGER NOT NULL, value TEXT, UNIQUE (key, number))",
)
_PRAGMAS = (
    "trusted_schema = OFF",
    "synchronous = FULL",
    "journal_mode = WAL",
    f"journal_size_limit = {4 * 1024 * 1024}",
)
_VALUE, _LIST, _SET = range(3)
_SIZE, _MOVED, _MOVED_AT = "size", "moved", "moved_at"
# Shorter than any steps that would be worth their while.
_SHORT = 256
_BUSY_SECONDS = 5.0
_MOST_OPEN = 4
_KEYS = """
    WITH RECURSIVE found(key) AS (
        SELECT min(key) FROM undo
        UNION ALL SELECT (SELECT min(key) FROM undo WHERE key > found.key) FROM found WHERE found.key IS NOT NULL
    ) SELECT key FROM found WHERE key IS NOT NULL"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the state: when it was made, and by whom."""

    number: int
    at: datetime
    by: str | None
    recovered: bool = False
    """The file was found changed: by hand, or by somebody who did not use the kit."""
    restored: int | None = None
    """The number of the earlier state that was made the current one again."""


class Database:
    """One thread's connection to the file of a state. Who writes must hold the state's lock."""

    def __init__(self, path: Path, connection: sqlite3.Connection, inode: tuple[int, int]) -> None:
        self.path = path
        self.inode = inode
        self._sql = connection

    @property
    def is_begun(self) -> bool:
        """Whether there is a state in it; set in the transaction that writes the first one."""
        return bool(self._sql.execute("PRAGMA user_version").fetchone()[0])

    @property
    def in_transaction(self) -> bool:
        return self._sql.in_transaction

    @property
    def size(self) -> int:
        """How long the state is as text."""
        return int(self._meta(_SIZE) or 0)

    @property
    def moved(self) -> str | None:
        """To whom this state was handed, if it is not to be changed here any more."""
        moved = self._meta(_MOVED)
        return None if moved is None else str(moved)

    @property
    def moved_at(self) -> datetime | None:
        """When that was."""
        at = self._meta(_MOVED_AT)
        return None if at is None else datetime.fromisoformat(str(at)).astimezone(UTC)

    def move(self, to: str | None) -> None:
        self._sql.execute("DELETE FROM meta WHERE name IN (?, ?)", (_MOVED, _MOVED_AT))
        if to is not None:
            noted = ((_MOVED, to), (_MOVED_AT, datetime.now(UTC).isoformat()))
            self._sql.executemany("INSERT INTO meta VALUES (?, ?)", noted)

    def close(self) -> None:
        self._sql.close()

    def copy_to(self, directory: Path) -> None:
        """Lay a copy into `directory`, as it is at this moment; it is on the disk then."""
        descriptor = opened(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            with explained(self.path), contextlib.closing(sqlite3.connect(directory / FILE)) as copy:
                self._sql.backup(copy)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(directory)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Everything that is read in the block is of one moment."""
        if self.in_transaction:
            yield
            return
        with explained(self.path):
            self._sql.execute("BEGIN")
            try:
                yield
            finally:
                self._sql.execute("COMMIT")

    @contextlib.contextmanager
    def writing(self, patience: float | None) -> Iterator[None]:
        """A transaction that is the block: it counts when that ends well, and on the disk."""
        began, owner = time.monotonic(), os.getpid()
        with explained(self.path):
            while True:
                try:
                    self._sql.execute("BEGIN IMMEDIATE")
                    break
                except sqlite3.OperationalError as error:
                    # Only a process that does not ask for the lock file can be in the way.
                    if _primary(error) != sqlite3.SQLITE_BUSY:
                        raise
                    if patience is not None and time.monotonic() - began >= patience:
                        raise StateBusy(f"another process writes {self.path}", hint="try again") from error
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                # In a forked child the transaction is its parent's.
                if os.getpid() == owner and self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")
                raise

    def create(self) -> None:
        """The tables, for a first state; they stay if the transaction does."""
        for statement in _TABLES:
            self._sql.execute(statement)
        self._sql.execute(f"PRAGMA user_version = {_VERSION}")
        self._sql.execute("INSERT INTO meta VALUES (?, 0)", (_SIZE,))

    def keys(self) -> list[str]:
        """Every key, in the order in which they came."""
        return [key for (key,) in self._sql.execute("SELECT key FROM entries ORDER BY id")]

    def names(self) -> list[str]:
        """The same in alphabetical order, which an index has: the values are not passed by."""
        return [key for (key,) in self._sql.execute("SELECT key FROM entries ORDER BY key")]

    def text(self, key: str) -> str | None:
        """The value as JSON; `None` if there is none."""
        row = self._sql.execute("SELECT kind, value FROM entries WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if row[0] == _VALUE:
            return str(row[1])
        items = self._sql.execute("SELECT value FROM items WHERE key = ? ORDER BY place", (key,))
        return f"[{','.join(value for (value,) in items)}]"

    def put(self, key: str, text: str | None, number: int) -> None:
        """Make a value what `text` says, `None` for no value, and note for change `number` what it was before."""
        old = self.text(key)
        steps = None
        if old is not None and text is not None and min(len(old), len(text)) > _SHORT:
            before, after = json.loads(old), json.loads(text)
            steps = difference({key: after}, {key: before})
            if self._extends(key, before, after):
                self._note(key, number, old, steps)
                self._grow(key, len(before), [text_of(each) for each in after[len(before) :]])
                return
        self._note(key, number, old, steps)
        if self._kind(key) != _VALUE:
            self._sql.execute("DELETE FROM items WHERE key = ?", (key,))
        if text is None:
            self._sql.execute("DELETE FROM entries WHERE key = ?", (key,))
        else:
            self._sql.execute(
                "INSERT INTO entries (key, kind, size, value) VALUES (?, ?, ?, ?) ON CONFLICT (key)"
                " DO UPDATE SET kind = excluded.kind, size = excluded.size, value = excluded.value",
                (key, _VALUE, len(text), text),
            )
        self._resize(len(text or "") - len(old or ""))

    def length(self, key: str) -> int | None:
        """How many items the list at `key` has, without reading it, if it grew by `append` or `add` before."""
        row = self._sql.execute(
            "SELECT kind, (SELECT max(place) FROM items WHERE items.key = entries.key) FROM entries WHERE key = ?",
            (key,),
        ).fetchone()
        return None if row is None or row[0] == _VALUE else (0 if row[1] is None else row[1] + 1)

    def spread(self, key: str, items: list[Any]) -> None:
        """Keep the list at `key`, which holds `items`, as a row per item from now on."""
        self._sql.execute("UPDATE entries SET kind = ?, value = NULL WHERE key = ?", (_LIST, key))
        self._insert(key, 0, [text_of(item) for item in items], digests=False)

    def append(self, key: str, length: int, text: str, number: int) -> None:
        """One more item of a list that is spread and has `length` of them."""
        steps = [["splice", [key], length, 1, []]]
        self._write_note(key, number, whole=False, text=json.dumps(steps))
        self._grow(key, length, [text])

    def contains(self, key: str, text: str) -> bool:
        """Whether a list that is spread has this item."""
        kind = self._kind(key)
        if kind == _LIST:
            every = self._sql.execute("SELECT value, place FROM items WHERE key = ?", (key,)).fetchall()
            self._sql.executemany(
                "UPDATE items SET digest = ? WHERE key = ? AND place = ?",
                [(_digest(value), key, place) for value, place in every],
            )
            self._sql.execute("UPDATE entries SET kind = ? WHERE key = ?", (_SET, key))
        found = self._sql.execute(
            "SELECT value FROM items WHERE key = ? AND digest = ?", (key, _digest(text))
        ).fetchall()
        return (text,) in found

    def change(self, change: Change) -> Change:
        self._sql.execute(
            "INSERT INTO changes VALUES (?, ?, ?, ?, ?)",
            (change.number, change.at.isoformat(), change.by, change.recovered, change.restored),
        )
        return change

    def next_number(self) -> int:
        return int(self._sql.execute("SELECT coalesce(max(number), 0) + 1 FROM changes").fetchone()[0])

    def changes(self, limit: int, before: int | None) -> list[Change]:
        """The newest first."""
        rows = self._sql.execute(
            "SELECT number, at, by, recovered, restored FROM changes WHERE number < ? ORDER BY number DESC LIMIT ?",
            (2**62 if before is None else before, max(0, limit)),
        )
        return [
            Change(
                number=number,
                at=datetime.fromisoformat(at).astimezone(UTC),
                by=by,
                recovered=bool(recovered),
                restored=restored,
            )
            for number, at, by, recovered, restored in rows
        ]

    def texts_at(self, number: int) -> Iterator[tuple[str, str]]:
        """Every key and its value as they were after change `number`. Raises `NoSuchChange`."""
        if self._sql.execute("SELECT 1 FROM changes WHERE number = ?", (number,)).fetchone() is None:
            raise NoSuchChange(f"there is no change {number}", hint="history() lists those that there are")
        gone = (key for (key,) in self._sql.execute(_KEYS).fetchall())
        for key in dict.fromkeys((*self.keys(), *gone)):
            text = self._text_at(key, number)
            if text is not None:
                yield key, text

    def _text_at(self, key: str, number: int) -> str | None:
        """What lay at a key: its first whole value since then, or the present one, and the steps back from there."""
        back: list[str] = []
        rows = self._sql.execute(
            "SELECT whole, value FROM undo WHERE key = ? AND number > ? ORDER BY number", (key, number)
        )
        for whole, value in rows:
            if whole:
                text: str | None = value
                break
            back.append(value)
        else:
            text = self.text(key)
        if not back or text is None:
            return text
        state = {key: json.loads(text)}
        for steps in reversed(back):
            follow(state, json.loads(steps))
        return text_of(state[key])

    def _extends(self, key: str, before: Any, after: Any) -> bool:
        if self._kind(key) == _VALUE or not isinstance(after, list) or len(after) <= len(before):
            return False
        return text_of(after[: len(before)]) == text_of(before)

    def _note(self, key: str, number: int, old: str | None, steps: list[Any] | None) -> None:
        """Steps, as long as all of them since the last whole value are shorter than one."""
        if steps is not None and old is not None:
            text = json.dumps(steps, separators=(",", ":"))
            if self._weight(key) + len(text) < len(old):
                self._write_note(key, number, whole=False, text=text)
                return
        self._write_note(key, number, whole=True, text=old)

    def _write_note(self, key: str, number: int, *, whole: bool, text: str | None) -> None:
        """What a change notes first is what it leads back to."""
        weight = 0 if whole else self._weight(key) + len(text or "")
        self._sql.execute(
            "INSERT OR IGNORE INTO undo (key, number, weight, whole, value) VALUES (?, ?, ?, ?, ?)",
            (key, number, weight, whole, text),
        )

    def _weight(self, key: str) -> int:
        row = self._sql.execute(
            "SELECT weight FROM undo WHERE key = ? ORDER BY number DESC LIMIT 1", (key,)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def _grow(self, key: str, length: int, texts: list[str]) -> None:
        self._insert(key, length, texts, digests=self._kind(key) == _SET)
        more = sum(map(len, texts)) + len(texts) - (length == 0)
        self._sql.execute("UPDATE entries SET size = size + ? WHERE key = ?", (more, key))
        self._resize(more)

    def _insert(self, key: str, start: int, texts: Iterable[str], *, digests: bool) -> None:
        self._sql.executemany(
            "INSERT INTO items (key, place, digest, value) VALUES (?, ?, ?, ?)",
            [
                (key, place, _digest(text) if digests else None, text)
                for place, text in enumerate(texts, start)
            ],
        )

    def _resize(self, more: int) -> None:
        size = self.size + more
        if size > MOST_BYTES:
            raise StateInvalid(
                f"takes {size:,} bytes; {MOST_BYTES:,} is the most", hint="keep large things elsewhere"
            )
        self._sql.execute("UPDATE meta SET value = ? WHERE name = ?", (size, _SIZE))

    def _kind(self, key: str) -> int:
        row = self._sql.execute("SELECT kind FROM entries WHERE key = ?", (key,)).fetchone()
        return _VALUE if row is None else int(row[0])

    def _meta(self, name: str) -> Any:
        row = self._sql.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say what SQLite has met in the words of the kit: a file that is no state, or a disk that takes no more."""
    try:
        yield
    except sqlite3.Error as error:
        code = _primary(error)
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise OSError(errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO, str(error)) from error
        raise StateDamaged(
            f"{path} cannot be used: {error}", hint="put a copy of it from before in its place"
        ) from error


def _primary(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


class _Connections(threading.local):
    """SQLite wants a connection in one thread and in one process."""

    def __init__(self) -> None:
        self.kept: dict[str, Database] = {}


_connections = _Connections()
# What a fork has copied must not even be closed: that would write.
_inherited: list[Database] = []


def _after_fork() -> None:
    _inherited.extend(_connections.kept.values())
    _connections.kept = {}


os.register_at_fork(after_in_child=_after_fork)


def connected(directory: Path, *, create: bool) -> Database | None:
    """The file in `directory`, which must be a plain one; without `create`, `None` where there is none."""
    path = directory / FILE
    # Never opened here but by SQLite: to close it would give back the locks of every connection of this process.
    try:
        found = path.lstat()
    except FileNotFoundError:
        if not create:
            return None
        os.close(opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise StateDamaged(f"{path} is no plain file", hint="move it away")
    inode = (found.st_dev, found.st_ino)
    known = _connections.kept.pop(str(path), None)
    if known is not None and known.inode != inode:
        known.close()
        known = None
    database = known or _connect(path, inode)
    _connections.kept[str(path)] = database
    while len(_connections.kept) > _MOST_OPEN:
        oldest = next(iter(_connections.kept))
        if _connections.kept[oldest].in_transaction:
            break
        _connections.kept.pop(oldest).close()
    return database


def _connect(path: Path, inode: tuple[int, int]) -> Database:
    with explained(path):
        sql = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # An agent writes where this lies: a link put there in this very moment has led elsewhere.
            if sql.execute("PRAGMA database_list").fetchone()[2] != os.path.join(  # noqa: PTH118
                os.path.realpath(path.parent), path.name
            ):
                raise StateDamaged(f"{path} is no plain file", hint="move it away")
            for pragma in _PRAGMAS:
                sql.execute(f"PRAGMA {pragma}").fetchall()
            _check_tables(path, sql)
        except BaseException:
            sql.close()
            raise
    return Database(path, sql, inode)


def _check_tables(path: Path, sql: sqlite3.Connection) -> None:
    """What an agent could have added, such as a trigger, must not run in another process."""
    found = [text for (text,) in sql.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    if found and found != list(_TABLES):
        raise StateDamaged(f"{path} has other tables than a state has", hint="move it away")
