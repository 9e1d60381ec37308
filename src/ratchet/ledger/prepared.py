"""Statements that run for every step, trial or event: compiled once, then given to the driver as they are.

To run a small statement SQLAlchemy takes several times as long as the database. Here it only writes it and knows the
types of its values and columns; what it would do for any statement anew is done once for each of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Misuse

_log = logging.getLogger(__name__)

Process = Callable[[Any], Any]
Row = tuple[Any, ...]
Values = Mapping[str, Any]
_NONE: Values = {}


class _Slot(NamedTuple):
    """Where a value goes: the one that is given under its name, or else the one that the statement itself holds."""

    name: str
    given: bool
    fixed: Any
    process: Process | None


@dataclass(slots=True)
class _Compiled:
    """A statement as one driver takes it. How its rows are read is known once the driver has named their types."""

    sql: str
    positional: bool
    slots: tuple[_Slot, ...]
    columns: tuple[sa.ColumnElement[Any], ...]
    dialect: sa.Dialect
    processes: tuple[tuple[int, Process], ...] | None = None

    def bound(self, values: Values) -> Any:
        """The values as the driver takes them."""
        found = [
            slot.fixed
            if not slot.given
            else values[slot.name]
            if slot.process is None
            else slot.process(values[slot.name])
            for slot in self.slots
        ]
        if self.positional:
            return tuple(found)
        return {slot.name: value for slot, value in zip(self.slots, found, strict=True)}

    def read(self, cursor: Any) -> list[Row]:
        """The rows with their values as the types of their columns have them."""
        if not self.columns:
            return []
        rows: list[Row] = cursor.fetchall()
        if self.processes is None:
            self.processes = tuple(self._processes(cursor.description))
        if not self.processes:
            return rows
        read = []
        for row in rows:
            values = list(row)
            for at, process in self.processes:
                values[at] = process(values[at])
            read.append(tuple(values))
        return read

    def _processes(self, description: Sequence[Any]) -> Iterable[tuple[int, Process]]:
        for at, (column, described) in enumerate(zip(self.columns, description, strict=True)):
            process = column.type.dialect_impl(self.dialect).result_processor(self.dialect, described[1])
            if process is not None:
                yield at, process


class Prepared:
    """One statement, or one for each dialect by its name. It must not hold lists that grow with their values.

    Runs within the transaction that the connection has begun, and raises what SQLAlchemy would.
    """

    def __init__(self, statement: sa.Executable | Mapping[str, sa.Executable]) -> None:
        self._statement = statement
        self._compiled: dict[tuple[str, ...], _Compiled] = {}

    def rows(self, connection: sa.Connection, values: Values = _NONE) -> list[Row]:
        """Run it; all of its rows, none for a statement that returns nothing."""
        compiled = self._for(connection, values)
        bound = compiled.bound(values)
        if _log.isEnabledFor(logging.DEBUG):
            # The values are for a handler that asks for them; they may be secret, and no log shows them.
            _log.debug(compiled.sql, extra={"connection": connection, "bound": bound})
        cursor = connection.connection.cursor()
        try:
            cursor.execute(compiled.sql, bound)
            return compiled.read(cursor)
        except Exception as error:
            raise _translated(error, connection, compiled.sql, bound) from error
        finally:
            cursor.close()

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

    def many(self, connection: sa.Connection, rows: Iterable[Values]) -> None:
        """Run it for each of `rows`, which all name the same values."""
        given = list(rows)
        if not given:
            return
        compiled = self._for(connection, given[0])
        bound = [compiled.bound(values) for values in given]
        cursor = connection.connection.cursor()
        try:
            cursor.executemany(compiled.sql, bound)
        except Exception as error:
            raise _translated(error, connection, compiled.sql, bound) from error
        finally:
            cursor.close()

    def _for(self, connection: sa.Connection, values: Values) -> _Compiled:
        key = (connection.dialect.name, *values)
        known = self._compiled.get(key)
        if known is None:
            known = self._compiled[key] = self._compile(connection.dialect, list(values))
        return known

    def _compile(self, dialect: sa.Dialect, names: list[str]) -> _Compiled:
        statement: Any = self._statement
        if isinstance(statement, Mapping):
            statement = statement[dialect.name]
        compiled = statement.compile(dialect=dialect, column_keys=names)
        order = compiled.positiontup if compiled.positional else list(compiled.params)
        return _Compiled(
            sql=str(compiled),
            positional=compiled.positional,
            slots=tuple(_slot(compiled, name, dialect, given=name in names) for name in order),
            columns=tuple(getattr(statement, "exported_columns", ())),
            dialect=dialect,
        )


def _slot(compiled: Any, name: str, dialect: sa.Dialect, *, given: bool) -> _Slot:
    bind = compiled.binds[name]
    if bind.expanding:
        raise TypeError(f"a list of values cannot be prepared: {compiled}")
    process = bind.type.dialect_impl(dialect).bind_processor(dialect)
    if given:
        return _Slot(name, given, None, process)
    if bind.required:
        raise KeyError(f"a statement wants a value for {name}: {compiled}")
    fixed = bind.effective_value
    return _Slot(name, given, fixed if process is None else process(fixed), None)


def _translated(error: Exception, connection: sa.Connection, sql: str, bound: Any) -> Exception:
    """The error as SQLAlchemy has it. A connection that is lost goes back to no pool."""
    if isinstance(error, OverflowError):
        return Misuse(f"a value does not fit into the ledger: {error}")
    dialect = connection.dialect
    driver = dialect.loaded_dbapi
    if not isinstance(error, driver.Error):
        return error
    if dialect.is_disconnect(error, connection.connection, None):
        connection.invalidate(error)
    return exc.DBAPIError.instance(sql, bound, error, driver.Error, dialect=dialect)
