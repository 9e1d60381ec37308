"""`ratchet schedule …`"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger, existing_runtime
from ratchet.cli.output import confirm, show_list
from ratchet.cli.records import record
from ratchet.cli.session import Session
from ratchet.cli.times import age, iso
from ratchet.kernel import Misuse
from ratchet.ledger import Transaction
from ratchet.runtime import Kinds, Schedule, list_schedules, remove_schedule
from ratchet.runtime.schedules import set_schedule_paused


@command("list")
@click.pass_obj
def list_(session: Session) -> None:
    """List schedules with their next time."""
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_schedules(tx)
    show_list(
        session,
        found,
        {
            "schedule": lambda schedule: schedule.name,
            "cron": lambda schedule: schedule.cron,
            "timezone": lambda schedule: schedule.timezone,
            "kind": lambda schedule: schedule.kind,
            "queue": lambda schedule: schedule.queue,
            "state": lambda schedule: "paused" if schedule.paused else "active",
            "next": lambda schedule: age(_next(schedule)),
            "last": lambda schedule: age(schedule.last_fired_at),
        },
        record=_record,
        empty="No schedules yet. `ratchet schedule add NAME CRON KIND` makes one.",
    )


@command()
@click.argument("name")
@click.argument("cron")
@click.argument("kind")
@click.option("--payload", metavar="JSON", help="What the job is given.")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Such as Europe/Berlin.")
@click.option("--queue", default="default", show_default=True, metavar="NAME", help="The queue of its jobs.")
@click.option("--key", metavar="KEY", help="Jobs with the same key never overlap.")
@click.pass_obj
def add(
    session: Session,
    name: str,
    cron: str,
    kind: str,
    payload: str | None,
    timezone: str,
    queue: str,
    key: str | None,
) -> None:
    """Make or replace a schedule.

    CRON has five fields (minute hour day month weekday), or six with seconds first; quote it. KIND is a kind of job.
    """
    given = _parsed(payload)
    with existing_runtime(session) as runtime, runtime.ledger.write(actor="cli") as tx:
        first = runtime.put_schedule(tx, name, cron, kind, given, timezone=timezone, queue=queue, key=key)
        schedule = _find(tx, name)
    confirm(session, _record(schedule), f"Schedule {name} is set; first at {_local(first)}.")


@command()
@click.argument("name")
@click.pass_obj
def pause(session: Session, name: str) -> None:
    """Let a schedule rest."""
    with _changing(session) as tx:
        set_schedule_paused(tx, name, True)
        schedule = _find(tx, name)
    confirm(session, _record(schedule), f"Schedule {name} rests; `ratchet schedule resume {name}` goes on.")


@command()
@click.argument("name")
@click.pass_obj
def resume(session: Session, name: str) -> None:
    """Let a paused schedule go on."""
    with _changing(session) as tx:
        set_schedule_paused(tx, name, False)
        schedule = _find(tx, name)
    confirm(session, _record(schedule), f"Schedule {name} goes on.")


@command()
@click.argument("name")
@click.pass_obj
def remove(session: Session, name: str) -> None:
    """Remove a schedule."""
    with _changing(session) as tx:
        remove_schedule(tx, name)
    confirm(session, {"name": name, "removed": True}, f"Schedule {name} is removed.")


@contextlib.contextmanager
def _changing(session: Session) -> Iterator[Transaction]:
    """A transaction on the schedules; the workers learn of it right after."""
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.write(actor="cli") as tx:
            yield tx
        runtime.apply_schedules()


def _find(tx: Transaction, name: str) -> Schedule:
    return next(each for each in list_schedules(tx) if each.name == name)


def _record(schedule: Schedule) -> dict[str, Any]:
    following = _next(schedule)
    return {**record(schedule), "next_at": None if following is None else iso(following)}


def _next(schedule: Schedule) -> int | None:
    """When it fires next; never while it rests, nor once its last date is past."""
    if schedule.paused:
        return None
    try:
        return int(schedule.next_after(time.time()).timestamp() * 1000)
    except Misuse:
        return None


def _local(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z")


def _parsed(payload: str | None) -> Any:
    try:
        return None if payload is None else json.loads(payload)
    except ValueError as error:
        raise Misuse(f"--payload is not JSON: {error}", hint="such as --payload '{\"depth\": 3}'") from None
