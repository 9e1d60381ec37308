"""How statements get from a connection to its database, past SQLAlchemy and past what is slow in a driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import sqlalchemy as sa

from ratchet.ledger.compiled import Bound, Compiled, Row


class Line(Protocol):
    """One connection's. It raises `Refused` for what the database or the driver does not take."""

    def ask(self, statement: Compiled, bound: Bound) -> list[Row]:
        """Run it now; its rows, none for a statement that returns nothing."""

    def tell(self, statement: Compiled, bound: Bound) -> None:
        """Run it before anything that is asked later, at the latest with the commit."""

    def tell_each(self, statement: Compiled, bounds: Sequence[Bound]) -> None:
        """Tell it once for each of these values."""

    def quiet(self) -> bool:
        """Whether the database has said nothing by itself since the last answer, as one that goes away does."""


class Refused(Exception):
    """A statement was not run, or its transaction is lost."""

    def __init__(self, statement: Compiled, bound: Bound, error: Exception) -> None:
        super().__init__(str(error))
        self.statement = statement
        self.bound = bound
        self.error = error


_NAME = "ratchet line"


def line_of(connection: sa.Connection) -> Line:
    """The line of a connection, which lives as long as the driver's connection does."""
    lent = connection.connection
    line: Line | None = lent.info.get(_NAME)
    if line is None:
        line = lent.info[_NAME] = _open(connection.dialect.name, lent.dbapi_connection)
    return line


def _open(dialect: str, driver: object) -> Line:
    # A driver that is not needed is not imported.
    if dialect == "postgresql":
        from ratchet.ledger.postgresql_line import PostgresqlLine

        return PostgresqlLine(driver)  # type: ignore[arg-type]
    from ratchet.ledger.sqlite_line import SqliteLine

    return SqliteLine(driver)  # type: ignore[arg-type]
