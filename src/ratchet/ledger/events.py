"""Events: what happened, in order, for ever.

The number of an event is the order of the world: a reader that has seen number N has seen everything below it. On
PostgreSQL numbers are given out before commits, so writers take one lock just before they append; it is held for the
commit only, which NOTIFY serialises anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import EventId
from ratchet.ledger.bell import Topic, channel
from ratchet.ledger.tables import events, runs

# Any number will do, as long as nothing else in the database locks it.
_APPEND_LOCK = 7_246_338_001
# With the notice, which other processes get with the commit, in one round trip.
_LOCK = sa.text(f"SELECT pg_advisory_xact_lock({_APPEND_LOCK}), pg_notify('{channel(Topic.EVENTS)}', '')")
# An event of a run is one of the run's project, whoever wrote it: what a project may see is one range of an index.
_APPEND = sa.insert(events).values(
    project_id=sa.func.coalesce(
        sa.bindparam("named_project", type_=events.c.project_id.type),
        sa.select(runs.c.project_id).where(runs.c.id == sa.bindparam("of_run")).scalar_subquery(),
    ),
    data=sa.bindparam("json", type_=sa.Text),
)


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the ledger."""

    id: EventId
    at: int
    type: str
    actor: str
    request_id: str | None = None
    project_id: int | None = None
    run_id: int | None = None
    step_id: int | None = None
    attempt_id: int | None = None
    job_id: int | None = None
    message: str | None = None
    data: Any = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events to read; a field that is `None` does not restrict.

    `type` ending in `.`, `.*` or `_*` means every type that starts so: `run.*`, `setup_*`.
    """

    project_id: int | None = None
    run_id: int | None = None
    step_id: int | None = None
    attempt_id: int | None = None
    job_id: int | None = None
    type: str | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        of_one: list[sa.ColumnElement[bool]] = [
            events.c[name] == value
            for name in ("project_id", "run_id", "step_id", "attempt_id", "job_id")
            if (value := getattr(self, name)) is not None
        ]
        if self.type is None:
            return of_one
        # The events of one thing are fewer than those of one type: hide the type, so that the other index is taken.
        type_ = events.c.type.concat("") if of_one else events.c.type
        if self.family is None:
            return [*of_one, type_ == self.type]
        return [*of_one, type_ >= self.family, type_ < _end(self.family)]

    @property
    def family(self) -> str | None:
        """What every wanted type starts with, when `type` names a family."""
        wanted = self.type or ""
        return wanted.removesuffix("*") if wanted.endswith((".", ".*", "_*")) else None

    @property
    def only_family(self) -> bool:
        return self.family is not None and self == Filter(type=self.type)


def append(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append `rows` as one batch, and tell other processes; the caller's transaction must end right after.

    Each has the columns of an event, but its project as `named_project`, its run also as `of_run`, and its data as the
    text `json`.
    """
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)
    connection.execute(_APPEND, rows)


def since(
    connection: sa.Connection, after: int = 0, *, where: Filter | None = None, limit: int = 500
) -> list[Event]:
    """The oldest `limit` events with a number above `after`."""
    return _page(connection, where or Filter(), [events.c.id > after], limit=limit)


def latest(
    connection: sa.Connection, *, before: int | None = None, where: Filter | None = None, limit: int = 50
) -> list[Event]:
    """The newest `limit` events, newest first, below the number `before`."""
    bounds = [] if before is None else [events.c.id < before]
    return _page(connection, where or Filter(), bounds, limit=limit, newest_first=True)


def last_id(connection: sa.Connection) -> int:
    """The number of the newest event; 0 when there is none."""
    return connection.execute(sa.select(sa.func.max(events.c.id))).scalar() or 0


def _page(
    connection: sa.Connection,
    where: Filter,
    bounds: list[sa.ColumnElement[bool]],
    *,
    limit: int,
    newest_first: bool = False,
) -> list[Event]:
    def page(source: sa.Table | sa.Subquery, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        order = source.c.id.desc() if newest_first else source.c.id.asc()
        return sa.select(source).where(*conditions).order_by(order).limit(limit)

    if where.family is None or not where.only_family:
        return _read(connection, page(events, *bounds, *where.conditions()))
    # The index has one type after the other, so a family as a whole would have to be sorted. A page of each of its few
    # types, merged, costs the same however long the history is.
    pages = [
        sa.select(page(events, events.c.type == each, *bounds).subquery())
        for each in _types(connection, where.family)
    ]
    return _read(connection, page(sa.union_all(*pages).subquery())) if pages else []


def _types(connection: sa.Connection, family: str) -> list[str]:
    """The types that start with `family`, each found by one look into the index."""
    found: list[str] = []
    lower = events.c.type >= family
    while True:
        least = sa.select(sa.func.min(events.c.type)).where(lower, events.c.type < _end(family))
        next_type = connection.execute(least).scalar()
        if next_type is None:
            return found
        found.append(next_type)
        lower = events.c.type > next_type


def _end(family: str) -> str:
    """The first text after every one that starts with `family`."""
    return family[:-1] + chr(ord(family[-1]) + 1)


def _read(connection: sa.Connection, query: sa.Select[Any]) -> list[Event]:
    return [Event(**row) for row in connection.execute(query).mappings()]
