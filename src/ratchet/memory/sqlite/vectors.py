"""The vectors of a memory, in this process: one matrix, searched by one product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ratchet.memory.sqlite.rows import Near

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# The product may differ in its last bits with a row's place in the matrix. Whatever comes this near to the last place
# is compared again in double precision, so that equal texts are equal and the order never depends on the process.
_MARGIN = 1e-5
# Rows that are multiplied at once. So few stay on this thread: for more the library wakes others, and on a busy machine
# waiting for them takes twenty times as long as the product.
_BLOCK = 32


class Vectors:
    """Rows by number, packed: a row that goes leaves its place to the last one."""

    def __init__(self, dimension: int) -> None:
        self._matrix = np.zeros((_BLOCK, dimension), dtype=np.float32)
        self._numbers = np.zeros(_BLOCK, dtype=np.int64)
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(self, number: int, vector: NDArray[np.float32]) -> None:
        """Add the row, or replace the one of this number."""
        place = self._places.get(number)
        if place is None:
            place = len(self._places)
            if place == len(self._numbers):
                self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
                self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
            self._numbers[place] = number
        self._matrix[place] = vector
        self._places[number] = place

    def drop(self, number: int) -> None:
        """Remove the row if it is there."""
        place = self._places.pop(number, None)
        last = len(self._places)
        if place is not None and place != last:
            self._matrix[place] = self._matrix[last]
            self._numbers[place] = self._numbers[last]
            self._places[int(self._numbers[place])] = place

    def nearest(
        self, query: NDArray[np.float32], limit: int, among: Sequence[int] | None = None
    ) -> list[Near]:
        """The rows most like `query`, best first; equal ones by number. With `among` only those."""
        count = len(self._places)
        places = np.arange(count)
        if among is not None:
            places = np.flatnonzero(np.isin(self._numbers[:count], np.array(among, dtype=np.int64)))
        blocks = -(-count // _BLOCK)
        rough = (self._matrix[: blocks * _BLOCK].reshape(-1, _BLOCK, len(query)) @ query).reshape(-1)[places]
        if len(places) > limit:
            worst = np.partition(rough, -limit)[-limit]
            places = places[rough >= worst - _MARGIN]
        exact = (self._matrix[places].astype(np.float64) * query).sum(axis=1)
        numbers = self._numbers[places]
        order = np.lexsort((numbers, -exact))[:limit]
        return [Near(int(numbers[index]), float(exact[index])) for index in order]
