"""`ratchet events`"""

from __future__ import annotations

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import note, print_line, show_list
from ratchet.cli.params import COUNT, ID, Number
from ratchet.cli.session import CliSession, interrupted
from ratchet.cli.words import clock, one_line, pairs
from ratchet.ledger import Event, EventFilter, Ledger, follow
from ratchet.ledger.events import last_id, latest
from ratchet.ledger.events import since as events_since
from ratchet.operations import record

_SHOWN = 50
_SHOWN_BEFORE_FOLLOWING = 10


@command(
    examples=[
        "ratchet events",
        "ratchet events --run 7 --follow",
        "ratchet events --type 'run.*' --since 1200 --json",
    ],
    see=["runs show", "protocol log"],
)
@click.option("--follow", "-f", "following", is_flag=True, help="Keep showing what happens, until Ctrl-C.")
@click.option("--since", type=Number(0, ID.max), metavar="N", help="Only events after this number.")
@click.option(
    "--limit",
    "-n",
    type=Number(0, COUNT.max),
    metavar="N",
    help=f"At most so many: the newest, or with --since the oldest. [{_SHOWN}, or {_SHOWN_BEFORE_FOLLOWING} to follow]",
)
@click.option("--run", "run_id", type=ID, metavar="RUN", help="Only events of this run.")
@click.option("--step", "step_id", type=ID, metavar="STEP", help="Only events of this step.")
@click.option("--job", "job_id", type=ID, metavar="JOB", help="Only events of this job.")
@click.option("--project", "project_id", type=ID, metavar="PROJECT", help="Only events of this project.")
@click.option("--type", metavar="TYPE", help="Only this type; run.* is every type that begins with run.")
def events(
    session: CliSession, /, following: bool, since: int | None, limit: int | None, **wanted: int | str | None
) -> None:
    """Show what happened, or follow it as it happens.

    Everything that Ratchet does is an event, and its number gives the order. The newest come last. With --json each
    event is one line.
    """
    where = EventFilter(**wanted)  # type: ignore[arg-type]
    with existing_ledger(session) as ledger:
        if following:
            _follow(session, ledger, where, since, _SHOWN_BEFORE_FOLLOWING if limit is None else limit)
        else:
            _list(session, _read(ledger, where, since, _SHOWN if limit is None else limit))


def _read(ledger: Ledger, where: EventFilter, since: int | None, limit: int) -> list[Event]:
    with ledger.read() as tx:
        if since is not None:
            return events_since(tx.connection, since, where=where, limit=limit)
        return latest(tx.connection, where=where, limit=limit)[::-1]


def _list(session: CliSession, found: list[Event]) -> None:
    if session.json:
        for event in found:
            print_line(record(event))
        return
    show_list(
        session,
        found,
        {
            "event": lambda event: event.id,
            "time": lambda event: clock(event.at),
            "type": lambda event: event.type,
            "about": _about,
            "message": _message,
        },
        record=record,
        empty="No such events. `ratchet events --follow` waits for new ones.",
    )


def _follow(session: CliSession, ledger: Ledger, where: EventFilter, since: int | None, limit: int) -> None:
    if since is None:
        with ledger.read() as tx:
            # Both in one transaction: what comes after it is followed, nothing is left out or shown twice.
            since = last_id(tx.connection)
            before = latest(tx.connection, where=where, limit=limit)[::-1]
        for event in before:
            _print(session, event)
    if not session.json:
        note("Following; Ctrl-C ends it.")
    with interrupted() as stop:
        for event in follow(ledger, since, where=where, stop=stop):
            _print(session, event)


def _print(session: CliSession, event: Event) -> None:
    if session.json:
        print_line(record(event))
    else:
        about, message = _about(event) or "", one_line(_message(event) or "")
        line = f"{event.id:>7}  {clock(event.at)}  {one_line(event.type):<20}  {about:<20}  {message}"
        print(line.rstrip(), flush=True)


def _about(event: Event) -> str | None:
    parts = {"project": event.project_id, "run": event.run_id, "step": event.step_id, "job": event.job_id}
    return " ".join(f"{name} {number}" for name, number in parts.items() if number is not None) or None


def _message(event: Event) -> str | None:
    return event.message or pairs(event.data)
