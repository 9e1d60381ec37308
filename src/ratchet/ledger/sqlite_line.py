"""Statements to a SQLite file: nothing is gained by waiting, so what is told is run at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ratchet.ledger.compiled import Bound, Compiled, Row
from ratchet.ledger.line import Refused


class SqliteLine:
    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver

    def ask(self, statement: Compiled, bound: Bound) -> list[Row]:
        try:
            rows = self._driver.execute(statement.sql, bound).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            raise Refused(statement, bound, error) from error
        return statement.read(rows, _untyped) if statement.columns else []

    def tell(self, statement: Compiled, bound: Bound) -> None:
        try:
            self._driver.execute(statement.sql, bound)
        except (sqlite3.Error, OverflowError) as error:
            raise Refused(statement, bound, error) from error

    def tell_each(self, statement: Compiled, bounds: Sequence[Bound]) -> None:
        try:
            self._driver.executemany(statement.sql, bounds)
        except (sqlite3.Error, OverflowError) as error:
            raise Refused(statement, bounds, error) from error

    def quiet(self) -> bool:
        return True


def _untyped(_at: int) -> None:
    """The driver names no types."""
