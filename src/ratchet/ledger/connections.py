"""Connections that stay at hand between transactions.

To take one from the pool and to give it back costs as much as a small transaction, and to ask a server whether it is
still there a round trip. So a few of those that were used last are kept, and the one that was used very last is taken
first: what it has read of a SQLite file is still true then. One to a server is not asked for again after a while.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa

from ratchet.ledger.line import line_of

_KEPT = 4
# A server that has gone away meanwhile has closed its connections, which is seen without asking. A network may have
# dropped one without a word, but not one that was in use a moment ago.
_MOMENT_SECONDS = 5.0


class _Kept(NamedTuple):
    connection: sa.Connection
    used_at: float


class Connections:
    """Any thread may take one; it is nobody else's until it is given back."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._seconds = float("inf") if engine.dialect.name == "sqlite" else _MOMENT_SECONDS
        self._at_hand: deque[_Kept] = deque()

    @contextlib.contextmanager
    def connected(self) -> Iterator[sa.Connection]:
        """A connection that has no transaction, and must have none in the end. One that fails is not kept."""
        connection = self._take()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(self._at_hand) < _KEPT:
            self._at_hand.append(_Kept(connection, time.monotonic()))
        else:
            connection.close()

    def close(self) -> None:
        while self._at_hand:
            self._at_hand.pop().connection.close()

    def _take(self) -> sa.Connection:
        try:
            kept = self._at_hand.pop()
        except IndexError:
            return self._engine.connect()
        if time.monotonic() - kept.used_at < self._seconds and line_of(kept.connection).quiet():
            return kept.connection
        # The pool sees to it that the server is still there.
        kept.connection.close()
        return self._engine.connect()
