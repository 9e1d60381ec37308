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
from ratchet.ledger.tables import events

CHANNEL = "ratchet_events"
# Any number will do, as long as nothing else in the database locks it.
_APPEND_LOCK = 7_246_338_001


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

    `type` ending in `.` or `.*` means every type that starts so: `run.*`.
    """

    project_id: int | None = None
    run_id: int | None = None
    step_id: int | None = None
    job_id: int | None = None
    type: str | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        found: list[sa.ColumnElement[bool]] = [
            events.c[name] == value
            for name in ("project_id", "run_id", "step_id", "job_id")
            if (value := getattr(self, name)) is not None
        ]
        if self.type is not None:
            prefix = self.type.removesuffix("*")
            if prefix.endswith("."):
                # A range rather than LIKE: it rides the index on both databases ('/' follows '.').
                found += [events.c.type >= prefix, events.c.type < prefix[:-1] + "/"]
            else:
                found.append(events.c.type == self.type)
        return found


def append(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append `rows` as one batch; the caller's transaction must end right after."""
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _APPEND_LOCK})
        connection.execute(sa.insert(events), list(rows))
        connection.execute(sa.text("SELECT pg_notify(:channel, '')"), {"channel": CHANNEL})
    else:
        connection.execute(sa.insert(events), list(rows))


def since(
    connection: sa.Connection, after: int = 0, *, where: Filter | None = None, limit: int = 500
) -> list[Event]:
    """The oldest `limit` events with a number above `after`."""
    query = sa.select(events).where(events.c.id > after, *(where or Filter()).conditions())
    return _read(connection, query.order_by(events.c.id).limit(limit))


def latest(
    connection: sa.Connection, *, before: int | None = None, where: Filter | None = None, limit: int = 50
) -> list[Event]:
    """The newest `limit` events, newest first, below the number `before`."""
    query = sa.select(events).where(*(where or Filter()).conditions())
    if before is not None:
        query = query.where(events.c.id < before)
    return _read(connection, query.order_by(events.c.id.desc()).limit(limit))


def last_id(connection: sa.Connection) -> int:
    """The number of the newest event; 0 when there is none."""
    return connection.execute(sa.select(sa.func.max(events.c.id))).scalar() or 0


def _read(connection: sa.Connection, query: sa.Select[Any]) -> list[Event]:
    return [Event(**row) for row in connection.execute(query).mappings()]
