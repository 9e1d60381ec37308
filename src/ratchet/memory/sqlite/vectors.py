"""The vectors of a memory, in this process: one matrix, searched by one product, and made again by another embedder."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ratchet.memory.memory import Embedder
from ratchet.memory.sqlite.file import open_file, translated
from ratchet.memory.sqlite.rows import Near, next_change

if TYPE_CHECKING:
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
