"""A statement as one driver takes it, with what to do to its values on the way in and out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

Process = Callable[[Any], Any]
Row = tuple[Any, ...]
Values = Mapping[str, Any]
Bound = Sequence[Any]
"""The values of a statement in the order of its places."""

_numbers = itertools.count()


class _Place(NamedTuple):
    """What goes to one place: the value that is given under a name, or else the one that the statement itself holds."""

    name: str
    given: bool
    fixed: Any
    process: Process | None


@dataclass(slots=True, eq=False)
class Compiled:
    """How its rows are read is known once the driver has named their types."""

    sql: str
    bind: Callable[[Values], Bound]
    columns: tuple[sa.ColumnElement[Any], ...]
    dialect: sa.Dialect
    name: bytes = field(default_factory=lambda: f"ratchet_{next(_numbers)}".encode())
    _reads: tuple[tuple[int, Process], ...] | None = None

    def read(self, rows: list[Row], types: Callable[[int], Any]) -> list[Row]:
        """The rows with their values as the types of their columns have them; `types` are the driver's, by place."""
        if self._reads is None:
            self._reads = tuple(self._processes(types))
        if not self._reads:
            return rows
        read = []
        for row in rows:
            values = list(row)
            for at, process in self._reads:
                values[at] = process(values[at])
            read.append(tuple(values))
        return read

    def _processes(self, types: Callable[[int], Any]) -> Iterable[tuple[int, Process]]:
        for at, column in enumerate(self.columns):
            process = column.type.dialect_impl(self.dialect).result_processor(self.dialect, types(at))
            if process is not None:
                yield at, process


def compiled(statement: Any, dialect: sa.Dialect, names: Iterable[str]) -> Compiled:
    """`statement` for `dialect`, whose places are numbered, and for values of these names."""
    given = set(names)
    made = statement.compile(dialect=dialect, column_keys=list(names))
    places = [_place(made, name, dialect, given=name in given) for name in made.positiontup or ()]
    return Compiled(str(made), _binder(places), tuple(getattr(statement, "exported_columns", ())), dialect)


def _place(made: Any, name: str, dialect: sa.Dialect, *, given: bool) -> _Place:
    bind = made.binds[name]
    if bind.expanding:
        raise TypeError(f"a list of values cannot be prepared: {made}")
    process = bind.type.dialect_impl(dialect).bind_processor(dialect)
    if given:
        return _Place(name, given, None, process)
    if bind.required:
        raise KeyError(f"a statement wants a value for {name}: {made}")
    fixed = bind.effective_value
    return _Place(name, given, fixed if process is None else process(fixed), None)


def _binder(places: Sequence[_Place]) -> Callable[[Values], Bound]:
    """What puts values in their places. It runs for every statement, so it is made for the places that there are."""
    processes = [(at, place.process) for at, place in enumerate(places) if place.process is not None]
    if len(places) < 2 or not all(place.given for place in places):
        return lambda values: [
            place.fixed
            if not place.given
            else values[place.name]
            if place.process is None
            else place.process(values[place.name])
            for place in places
        ]
    take = itemgetter(*(place.name for place in places))
    if not processes:
        return take

    def bind(values: Values) -> Bound:
        bound = list(take(values))
        for at, process in processes:
            bound[at] = process(bound[at])
        return bound

    return bind
