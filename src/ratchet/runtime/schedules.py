"""Schedules: jobs that come again by a cron expression."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from croniter import CroniterBadDateError, CroniterError, croniter

from ratchet.kernel import Misuse, NotFound, is_name
from ratchet.ledger import Transaction
from ratchet.ledger.tables import schedules
from ratchet.runtime.job import DEFAULT_QUEUE

# A tick is on its way for a second or two; only one that is later than this was overtaken.
LATE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Schedule:
    name: str
    cron: str
    timezone: str
    kind: str
    queue: str
    key: str | None
    payload: Any
    paused: bool
    created_at: int
    last_fired_at: int | None

    def next_after(self, moment: float) -> datetime:
        return _next(self.cron, self.timezone, datetime.fromtimestamp(moment, UTC))


def put_schedule(
    tx: Transaction,
    name: str,
    cron: str,
    kind: str,
    payload: Any = None,
    *,
    timezone: str = "UTC",
    queue: str = DEFAULT_QUEUE,
    key: str | None = None,
) -> datetime:
    """Make or replace a schedule; returns its first time. Refuses one that never happens again."""
    if not is_name(name):
        raise Misuse(
            f"{name!r} cannot name a schedule", hint="use lower-case letters, digits, dots and dashes"
        )
    first = _next(cron, timezone, datetime.now(UTC))
    values = {
        "cron": cron,
        "timezone": timezone,
        "kind": kind,
        "queue": queue,
        "key": key,
        "payload": payload if payload is not None else {},
        "paused": False,
    }
    insert = tx.insert(schedules).values(name=name, created_at=tx.now, **values)
    tx.connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values))
    tx.event("schedule.set", message=name, data={"cron": cron, "timezone": timezone, "kind": kind})
    return first


def set_schedule_paused(tx: Transaction, name: str, paused: bool) -> None:
    changed = tx.connection.execute(
        sa.update(schedules).where(schedules.c.name == name).values(paused=paused)
    )
    if changed.rowcount == 0:
        raise NotFound("schedule", name)
    tx.event("schedule.paused" if paused else "schedule.resumed", message=name)


def remove_schedule(tx: Transaction, name: str) -> None:
    if tx.connection.execute(sa.delete(schedules).where(schedules.c.name == name)).rowcount == 0:
        raise NotFound("schedule", name)
    tx.event("schedule.removed", message=name)


def list_schedules(tx: Transaction) -> list[Schedule]:
    query = sa.select(schedules).order_by(schedules.c.name)
    return [Schedule(**row) for row in tx.connection.execute(query).mappings()]


def due(tx: Transaction, name: str, moment: float, now: float) -> Schedule | None:
    """The schedule if it is to fire for `moment`.

    Not when it is gone or paused, nor when a later moment is due already: after a clock that jumped, or a pause of the
    machine, the missed times fire once and not by the thousand.
    """
    row = tx.connection.execute(sa.select(schedules).where(schedules.c.name == name)).mappings().first()
    if row is None or row["paused"]:
        return None
    schedule = Schedule(**row)
    if schedule.next_after(moment).timestamp() <= now - LATE_SECONDS:
        return None
    tx.connection.execute(
        sa.update(schedules).where(schedules.c.name == name).values(last_fired_at=int(moment * 1000))
    )
    return schedule


def _next(cron: str, timezone: str, after: datetime) -> datetime:
    try:
        zone = ZoneInfo(timezone)
    except Exception as error:  # ZoneInfo raises several unrelated types for a bad key
        raise Misuse(
            f"there is no time zone {timezone!r}", hint="use a name such as Europe/Berlin"
        ) from error
    try:
        found = croniter(cron, after.astimezone(zone), second_at_beginning=True).get_next(datetime)
    except CroniterBadDateError as error:
        raise Misuse(
            f"the schedule {cron!r} never happens again: it lies in the past or on no date"
        ) from error
    except (CroniterError, ValueError, KeyError, AttributeError) as error:
        raise Misuse(
            f"{cron!r} is not a cron expression: {error}",
            hint="five fields (minute hour day month weekday), or six with seconds first",
        ) from error
    assert isinstance(found, datetime)
    return found
