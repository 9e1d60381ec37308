"""The memory in a SQLite file.

The file holds everything; each process keeps a copy of the vectors and, at every search, adds what was written since.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ratchet.kernel import Misuse
from ratchet.memory import sqlite_rows as rows
from ratchet.memory.memory import (
    Embedder,
    FoundEntry,
    MemoryDraft,
    MemoryEntry,
    MemoryFilter,
    Where,
    WrongEmbedder,
    check_limit,
    clean,
)
from ratchet.memory.sqlite_file import open_file, translated
from ratchet.memory.sqlite_rows import Near, match, next_change

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_BATCH = 256


def reembed_file(path: Path, embedder: Embedder) -> int:
    """All in one transaction: others wait, and after a crash everything is as it was. Returns how many."""
    with (
        contextlib.closing(open_file(path, embedder.name, embedder.dimension)) as connection,
        translated(path),
    ):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE entries SET change = ?", (next_change(connection),))
        connection.execute(
            "UPDATE state SET embedder = ?, dimension = ?", (embedder.name, embedder.dimension)
        )
        done = last = 0
        while batch := connection.execute(
            "SELECT number, text FROM entries WHERE number > ? ORDER BY number LIMIT ?", (last, _BATCH)
        ).fetchall():
            vectors = embedder.embed([text for _, text in batch])
            connection.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?)",
                [
                    (number, vector.astype("<f4").tobytes())
                    for vector, (number, _) in zip(vectors, batch, strict=True)
                ],
            )
            done += len(batch)
            last = batch[-1][0]
        connection.execute("COMMIT")
    return done


# The product may differ in its last bits with a row's place in the matrix. Whatever comes this near to the last place
# is compared again in double precision, so that equal texts are equal and the order never depends on the process.
_MARGIN = 1e-5
# Rows that are multiplied at once. So few stay on this thread: for more the library wakes others, and on a busy machine
# waiting for them takes twenty times as long as the product.
_BLOCK = 32


class Vectors:
    """Rows by number, packed: a row that goes leaves its place to the last one.

    Each has the kind and the scope of its entry, so that most searches need not ask the file which rows are meant.
    """

    def __init__(self, dimension: int) -> None:
        self._matrix = np.zeros((_BLOCK, dimension), dtype=np.float32)
        self._numbers = np.zeros(_BLOCK, dtype=np.int64)
        self._kinds = np.zeros(_BLOCK, dtype=np.int32)
        self._scopes = np.zeros(_BLOCK, dtype=np.int32)
        self._places: dict[int, int] = {}
        self._codes: dict[str | None, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(
        self, number: int, vector: NDArray[np.float32], kind: str | None = None, scope: str | None = None
    ) -> None:
        """Add the row, or replace the one of this number."""
        place = self._places.get(number)
        if place is None:
            place = len(self._places)
            if place == len(self._numbers):
                self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
                self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
                self._kinds = np.concatenate([self._kinds, np.zeros_like(self._kinds)])
                self._scopes = np.concatenate([self._scopes, np.zeros_like(self._scopes)])
            self._numbers[place] = number
        self._matrix[place] = vector
        self._kinds[place] = self._codes.setdefault(kind, len(self._codes))
        self._scopes[place] = self._codes.setdefault(scope, len(self._codes))
        self._places[number] = place

    def drop(self, number: int) -> None:
        """Remove the row if it is there."""
        place = self._places.pop(number, None)
        last = len(self._places)
        if place is not None and place != last:
            self._matrix[place] = self._matrix[last]
            self._numbers[place] = self._numbers[last]
            self._kinds[place] = self._kinds[last]
            self._scopes[place] = self._scopes[last]
            self._places[int(self._numbers[place])] = place

    def nearest(
        self,
        query: NDArray[np.float32],
        limit: int,
        among: NDArray[np.int64] | None = None,
        *,
        kind: str | None = None,
        scope: str | None = None,
    ) -> list[Near]:
        """The rows most like `query`, best first; equal ones by number. Only those of `among`, `kind` and `scope`."""
        count = len(self._places)
        places = np.flatnonzero(self._meant(count, among, kind, scope))
        blocks = -(-count // _BLOCK)
        rough = (self._matrix[: blocks * _BLOCK].reshape(-1, _BLOCK, len(query)) @ query).reshape(-1)[places]
        if len(places) > limit:
            worst = np.partition(rough, -limit)[-limit]
            places = places[rough >= worst - _MARGIN]
        exact = (self._matrix[places].astype(np.float64) * query).sum(axis=1)
        numbers = self._numbers[places]
        order = np.lexsort((numbers, -exact))[:limit]
        return [Near(int(numbers[index]), float(exact[index])) for index in order]

    def _meant(
        self, count: int, among: NDArray[np.int64] | None, kind: str | None, scope: str | None
    ) -> NDArray[np.bool_]:
        meant = np.ones(count, dtype=np.bool_)
        if kind is not None:
            meant &= self._kinds[:count] == self._codes.get(kind, -1)
        if scope is not None:
            meant &= self._scopes[:count] == self._codes.get(scope, -1)
        if among is not None:
            meant &= np.isin(self._numbers[:count], among)
        return meant


# A process that slept through more changes than this reads everything again.
_KEPT_CHANGES = 10_000
# Narrower searches whose entries are known at once.
_KEPT_NUMBERS = 32


class SqliteMemory:
    """One open file. Not usable after a fork: open it again there."""

    def __init__(self, path: Path, embedder: Embedder) -> None:
        self.path = path
        self._embedder = embedder
        self._connection = open_file(path, embedder.name, embedder.dimension)
        self._process = os.getpid()
        self._closed = False
        self._vectors: Vectors | None = None
        self._seen = 0
        self._among: dict[tuple[str | None, frozenset[str]], NDArray[np.int64] | None] = {}
        # The connection has one transaction at a time, and `_vectors`, `_seen` and `_among` change together.
        self._lock = threading.RLock()
        try:
            with self._transaction() as connection:
                self._check_embedder(rows.state(connection))
        except BaseException:
            self.close()
            raise

    def store(
        self,
        text: str,
        *,
        kind: str,
        tags: Collection[str] = (),
        data: Mapping[str, Any] | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> str:
        draft = MemoryDraft.of(text, kind=kind, tags=tags, data=data, scope=scope, key=key)
        vector = self._embed(draft.text)
        with self._transaction("IMMEDIATE") as connection:
            self._check_embedder(rows.state(connection))
            if not rows.holds(connection, draft):
                rows.write(connection, draft, vector, now=time.time_ns() // 1_000_000)
        return draft.id

    def find(self, meaning: str, *, limit: int = 10, **where: Unpack[Where]) -> list[FoundEntry]:
        check_limit(limit)
        wanted = MemoryFilter.of(where)
        if not meaning.strip():
            return []
        query = self._embed(clean(meaning))
        with self._transaction() as connection:
            vectors = self._catch_up(connection)
            among = self._meant(connection, wanted)
            near = vectors.nearest(query, limit, among, kind=wanted.kind, scope=wanted.scope)
            return rows.found(connection, near)

    def words(self, query: str, *, limit: int = 10, **where: Unpack[Where]) -> list[FoundEntry]:
        check_limit(limit)
        wanted = MemoryFilter.of(where)
        with self._transaction() as connection:
            return rows.found(connection, match(connection, clean(query), wanted, limit))

    def entries(self, *, limit: int = 100, **where: Unpack[Where]) -> list[MemoryEntry]:
        check_limit(limit)
        wanted = MemoryFilter.of(where)
        with self._transaction() as connection:
            return list(rows.newest(connection, wanted, limit))

    def delete(self, **where: Unpack[Where]) -> int:
        wanted = MemoryFilter.of(where)
        if wanted.empty:
            raise Misuse("nothing says which entries to forget", hint="name an id, a kind, tags or a scope")
        with self._transaction("IMMEDIATE") as connection:
            return rows.delete(connection, wanted, kept_changes=_KEPT_CHANGES)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._vectors = None
            if self._process == os.getpid():
                self._connection.close()

    def _embed(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._embedder.embed([text])[0]
        return vector

    def _catch_up(self, connection: sqlite3.Connection) -> Vectors:
        """The vectors as they are in this transaction; only what changed since the last one is read."""

        state = rows.state(connection)
        self._check_embedder(state)
        if self._vectors is None or self._seen < state.forgotten:
            self._vectors, self._seen = Vectors(state.dimension), 0
        if self._seen < state.change:
            self._among.clear()
            for number in rows.deleted_since(connection, self._seen):
                self._vectors.drop(number)
            for row in rows.vectors_since(connection, self._seen, state.dimension):
                self._vectors.put(*row)
            self._seen = state.change
        return self._vectors

    def _meant(self, connection: sqlite3.Connection, wanted: MemoryFilter) -> NDArray[np.int64] | None:
        """See `rows.numbers`. Kept until something changes: reading ten thousand takes as long as the search."""
        key = (wanted.id, wanted.tags)
        if key not in self._among:
            if len(self._among) >= _KEPT_NUMBERS:
                self._among.clear()
            self._among[key] = rows.numbers(connection, wanted)
        return self._among[key]

    def _check_embedder(self, state: rows.State) -> None:
        if (state.embedder, state.dimension) != (self._embedder.name, self._embedder.dimension):
            raise WrongEmbedder(str(self.path), state.embedder, self._embedder.name)

    @contextlib.contextmanager
    def _transaction(self, mode: str = "DEFERRED") -> Iterator[sqlite3.Connection]:
        if self._process != os.getpid():
            raise Misuse(f"{self.path} was opened before this process was forked; open it again")
        with self._lock, translated(self.path):
            if self._closed:
                raise Misuse(f"the memory {self.path} is closed")
            self._connection.execute(f"BEGIN {mode}")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
