"""`ratchet agent state`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ratchet.agents import operations
from ratchet.agents.views import change_record
from ratchet.cli.command import command
from ratchet.cli.opening import existing_runtime
from ratchet.cli.output import confirm, print_document, show_list
from ratchet.cli.params import COUNT, ID, agent_argument
from ratchet.cli.words import age_of
from ratchet.kernel import Misuse
from ratchet.runtime import Kinds, Runtime

if TYPE_CHECKING:
    from ratchet.cli.session import Session


@command(
    examples=[
        "ratchet agent state greeter",
        "ratchet agent state greeter --history",
        "ratchet agent state greeter --at 3",
        "ratchet agent state greeter --restore 3",
    ]
)
@agent_argument
@click.option("--version", metavar="VERSION", help="Of this version; of the current one if not given.")
@click.option("--history", is_flag=True, help="List the changes of the state, newest first.")
@click.option("--limit", "-n", type=COUNT, default=20, show_default=True, help="At most so many changes.")
@click.option("--before", type=ID, metavar="N", help="Only changes older than this one: the next page.")
@click.option("--at", type=ID, metavar="N", help="Show the state as it was after change N.")
@click.option("--restore", type=ID, metavar="N", help="Bring the state after change N back, as a new change.")
@click.pass_obj
def state(
    session: Session,
    name: str,
    version: str | None,
    history: bool,
    limit: int,
    before: int | None,
    at: int | None,
    restore: int | None,
) -> None:
    """Show an agent's state, its history, or bring an earlier one back.

    The state is one JSON object, checked against the schema of its version. Every change is kept, whoever made it: the
    agent, the Architect, or --restore. What is printed is JSON in any case, except for the history.
    """
    if sum((history, at is not None, restore is not None)) > 1:
        raise Misuse("--history, --at and --restore exclude each other", hint="give one of them")
    with existing_runtime(session, Kinds()) as runtime:
        if history:
            _show_history(session, runtime, name, version, limit, before)
        elif restore is not None:
            change = operations.restore_state(runtime, name, restore, version, actor="cli")
            told = f"{name} has the state of change {restore} again, as change {change.number}."
            confirm(session, change_record(change), told)
        elif at is not None:
            print_document(operations.state_at(runtime, name, at, version))
        else:
            print_document(operations.read_state(runtime, name, version))


def _show_history(
    session: Session, runtime: Runtime, name: str, version: str | None, limit: int, before: int | None
) -> None:
    found = operations.state_history(runtime, name, version, limit=limit, before=before)
    show_list(
        session,
        [change_record(change) for change in found],
        {
            "change": lambda change: change["number"],
            "made": lambda change: age_of(change["at"]),
            "by": lambda change: change["by"],
            "restored": lambda change: change["restored"],
            "recovered": lambda change: change["recovered"] or None,
        },
        record=lambda change: change,
        empty=f"The state of {name} has not changed yet.",
    )
