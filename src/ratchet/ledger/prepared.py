"""Statements that run for every step, trial or event: compiled once, then given to the driver as they are.

To run a small statement SQLAlchemy takes several times as long as the database. Here it only writes it and knows the
types of its values and columns; what it would do for any statement anew is done once for each of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import registry

from ratchet.kernel import Misuse
from ratchet.ledger.compiled import Bound, Compiled, Row, Values, compiled
from ratchet.ledger.line import Refused, line_of

_log = logging.getLogger(__name__)
_NONE: Values = {}


@cache
def _dialect(name: str) -> sa.Dialect:
    """As the lines take statements: with numbered places. One that is not used is not imported."""
    dialect: sa.Dialect
    if name == "sqlite":
        dialect = registry.load("sqlite")(paramstyle="qmark")
    else:
        dialect = registry.load("postgresql.psycopg")(paramstyle="numeric_dollar")
    return dialect


class Prepared:
    """One statement, or one for each dialect: by its name, or from a function of its name.

    It must not hold lists that grow with their values.

    Runs within the transaction that the connection has begun, and raises what SQLAlchemy would.
    """

    def __init__(
        self, statement: sa.Executable | Mapping[str, sa.Executable] | Callable[[str], sa.Executable]
    ) -> None:
        self._statement = statement
        self._compiled: dict[str, dict[tuple[str, ...], Compiled]] = {"sqlite": {}, "postgresql": {}}

    def rows(self, connection: sa.Connection, values: Values = _NONE) -> list[Row]:
        """Run it; all of its rows, none for a statement that returns nothing."""
        statement = self._for(connection, values)
        bound = statement.bind(values)
        if _log.isEnabledFor(logging.DEBUG):
            _show(connection, statement, bound)
        try:
            return line_of(connection).ask(statement, bound)
        except Refused as refused:
            raise translated(connection, refused) from refused.error

    def first(self, connection: sa.Connection, values: Values = _NONE) -> Row | None:
        found = self.rows(connection, values)
        return found[0] if found else None

    def scalar(self, connection: sa.Connection, values: Values = _NONE) -> Any:
        """The only column of the first row, or `None`."""
        found = self.rows(connection, values)
        return found[0][0] if found else None

    def mappings(self, connection: sa.Connection, values: Values = _NONE) -> list[dict[str, Any]]:
        """The rows by the names of their columns."""
        found = self.rows(connection, values)
        if not found:
            return []
        names = [str(column.key) for column in self._for(connection, values).columns]
        return [dict(zip(names, row, strict=True)) for row in found]

    def mapping(self, connection: sa.Connection, values: Values = _NONE) -> dict[str, Any] | None:
        """The first row by the names of its columns."""
        found = self.mappings(connection, values)
        return found[0] if found else None

    def tell(self, connection: sa.Connection, values: Values = _NONE) -> None:
        """Have it run where nobody waits for the answer: before the next statement, at the latest with the commit.

        What is wrong with it is raised then.
        """
        statement = self._for(connection, values)
        bound = statement.bind(values)
        if _log.isEnabledFor(logging.DEBUG):
            _show(connection, statement, bound)
        try:
            line_of(connection).tell(statement, bound)
        except Refused as refused:
            raise translated(connection, refused) from refused.error

    def tell_each(self, connection: sa.Connection, rows: Iterable[Values]) -> None:
        """Tell it for each of `rows`, which all name the same values."""
        given = list(rows)
        if not given:
            return
        statement = self._for(connection, given[0])
        bounds = [statement.bind(values) for values in given]
        if _log.isEnabledFor(logging.DEBUG):
            for bound in bounds:
                _show(connection, statement, bound)
        try:
            line_of(connection).tell_each(statement, bounds)
        except Refused as refused:
            raise translated(connection, refused) from refused.error

    def _for(self, connection: sa.Connection, values: Values) -> Compiled:
        dialect, key = connection.dialect.name, tuple(values)
        known = self._compiled[dialect].get(key)
        if known is None:
            statement: Any = self._statement
            if isinstance(statement, Mapping):
                statement = statement[dialect]
            elif not isinstance(statement, sa.Executable):
                statement = statement(dialect)
            known = self._compiled[dialect][key] = compiled(statement, _dialect(dialect), key)
        return known


def translated(connection: sa.Connection, refused: Refused) -> Exception:
    """The error as SQLAlchemy has it. A connection that is lost goes back to no pool."""
    error, dialect = refused.error, connection.dialect
    if isinstance(error, OverflowError):
        return Misuse(f"a value does not fit into the ledger: {error}")
    if dialect.is_disconnect(error, connection.connection, None):  # type: ignore[arg-type]
        connection.invalidate(error)
    return exc.DBAPIError.instance(
        refused.statement.sql, refused.bound, error, dialect.loaded_dbapi.Error, dialect=dialect
    )


def _show(connection: sa.Connection, statement: Compiled, bound: Bound) -> None:
    # The values are for a handler that asks for them; they may be secret, and no log shows them.
    _log.debug(statement.sql, extra={"connection": connection, "bound": tuple(bound)})
