"""`ratchet agent logs`"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from ratchet.agents.contract import Role
from ratchet.agents.logs import MOST_LINES, AgentLog, LogEnd, after, find_log, log_record, tail
from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import note, print_document, print_line
from ratchet.cli.params import Number, agent_argument
from ratchet.cli.words import lines as harmless

if TYPE_CHECKING:
    from ratchet.cli.session import Session

_LOOK_SECONDS = 0.25


@command(
    examples=[
        "ratchet agent logs greeter",
        "ratchet agent logs greeter --server tuner -n 200",
        "ratchet agent logs greeter --version 0.0.0 --printed",
        "ratchet agent logs greeter --follow",
    ],
    see=["agent call"],
)
@agent_argument
@click.option("--version", metavar="VERSION", help="Of this version; of the current one if not given.")
@click.option(
    "--server",
    type=click.Choice([str(role) for role in Role]),
    default=str(Role.RUNNER),
    show_default=True,
    help="Which of the two servers.",
)
@click.option(
    "--lines",
    "-n",
    type=Number(0, MOST_LINES),
    default=50,
    show_default=True,
    help="At most so many, the last ones.",
)
@click.option(
    "--printed", is_flag=True, help="What it printed, such as a traceback, instead of what it logged."
)
@click.option("--follow", "-f", "following", is_flag=True, help="Go on with what is logged, until Ctrl-C.")
@click.pass_obj
def logs(
    session: Session, name: str, version: str | None, server: str, lines: int, printed: bool, following: bool
) -> None:
    """Show what an agent's servers have logged.

    Each version has logs of its own, in logs/ of its directory: what a server wrote with the kit's `log`, and apart
    from that what it printed. With --follow and --json each line is one JSON document.
    """
    home = session.load().home
    with existing_ledger(session) as ledger, ledger.read() as tx:
        log = find_log(tx, home, name, Role(server), version, printed=printed)
    end = tail(log, lines)
    if following:
        _follow(session, log, end)
    elif session.json:
        print_document(log_record(log, end))
    else:
        _print(session, end)
        if not end.lines:
            what, other = ("printed", "") if printed else ("logged", "; --printed shows what it printed")
            note(f"The {server} of {name} {log.commit[:12]} has {what} nothing{other}.")


def _follow(session: Session, log: AgentLog, end: LogEnd) -> None:
    _print(session, end)
    if not session.json:
        note("Following; Ctrl-C ends it.")
    try:
        while True:
            time.sleep(_LOOK_SECONDS)
            end = after(log, end)
            _print(session, end)
    except KeyboardInterrupt:
        return  # the way that following ends


def _print(session: Session, end: LogEnd) -> None:
    for line in end.lines:
        if session.json:
            print_line({"line": line})
        else:
            print(harmless(line) if sys.stdout.isatty() else line, flush=True)
