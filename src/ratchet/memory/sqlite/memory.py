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

from ratchet.kernel import Misuse
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
from ratchet.memory.sqlite import rows
from ratchet.memory.sqlite.file import open_file, translated
from ratchet.memory.sqlite.rows import match

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ratchet.memory.sqlite.vectors import Vectors

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
        from ratchet.memory.sqlite.vectors import Vectors

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
