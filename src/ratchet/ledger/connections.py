"""Connections that stay at hand between transactions.

To take one from the pool and to give it back costs as much as a small transaction. So a few of those that were used
last are kept, and the one that was used very last is taken first: what it has read of a SQLite file is still true then.
One to a server always comes from the pool, which sees to it that the server is still there.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator

import sqlalchemy as sa

_KEPT = 4


class Connections:
    """Any thread may take one; it is nobody else's until it is given back."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._most = _KEPT if engine.dialect.name == "sqlite" else 0
        self._at_hand: deque[sa.Connection] = deque()

    @contextlib.contextmanager
    def connected(self) -> Iterator[sa.Connection]:
        """A connection that has no transaction, and must have none in the end. One that fails is not kept."""
        connection = self._take()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(self._at_hand) < self._most:
            self._at_hand.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._at_hand:
            self._at_hand.pop().close()

    def _take(self) -> sa.Connection:
        try:
            return self._at_hand.pop()
        except IndexError:
            return self._engine.connect()
