"""`ratchet protocol list`, `show` and `log`"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.operation import CliCall, looking_like
from ratchet.cli.output import note, print_document, print_foreign, print_line, show_list, show_page
from ratchet.cli.params import COUNT, protocol_argument, within_option
from ratchet.cli.protocol_pages import print_overview, pull_request
from ratchet.cli.session import interrupted
from ratchet.cli.words import age, one_line
from ratchet.kernel import Misuse, NotFound, StepStatus
from ratchet.ledger import Attempt, Event, EventFilter, Ledger, Step, Transaction, follow
from ratchet.ledger.ledger import log_line, read_log
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import Protocol, count_protocol_steps, list_protocol_steps
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.operations import record
from ratchet.protocols import operations
from ratchet.protocols.lookup import protocol_named
from ratchet.protocols.views import attempt_answers

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.operations import Listing
    from ratchet.protocols.views import ProtocolAnswer

_PART = 1024 * 1024


@looking_like(operations.list_)
def list_(session: CliSession, call: CliCall, found: Listing[ProtocolAnswer]) -> None:
    with call.read() as tx:
        counts = count_protocol_steps(tx, [each.id for each in found.items])
        names = {each.project_id: get_project(tx, each.project_id).name for each in found.items}
    show_list(
        session,
        found.items,
        {
            "protocol": lambda each: each.id,
            "project": lambda each: names[each.project_id],
            "name": lambda each: each.protocol_name,
            "status": lambda each: each.status,
            "steps": lambda each: _counted(counts[each.id]),
            "created": lambda each: age(each.created_at),
            "pull request": lambda each: pull_request(each.pull_request),
            "reason": lambda each: None if each.status.final else each.reason,
        },
        record=record,
        empty=operations.list_.empty,
    )


@command(
    examples=[
        "ratchet protocol show 7",
        "ratchet protocol show 0007-add-login --project shop",
        "ratchet protocol show 7 --json | jq '.steps[] | {step_name, status, verdict}'",
    ],
    see=["protocol log", "step show"],
)
@protocol_argument
@within_option
def show(session: CliSession, wanted: str, project: str | None) -> None:
    """Show one protocol: its steps, why it waits, and the command to type next."""
    from ratchet.protocols.overview import overview

    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = overview(tx, protocol_named(tx, wanted, project=project).run_id)
    show_page(session, found, print_overview, found)


@command(
    examples=[
        "ratchet protocol log 7",
        "ratchet protocol log 7 --step 01 --attempt 2",
        "ratchet protocol log 7 --follow",
    ],
    see=["step show", "events"],
)
@protocol_argument
@within_option
@click.option("--step", "place", metavar="NN", help="Only of this step: its place, or its name.")
@click.option("--attempt", type=COUNT, metavar="N", help="Only of its Nth attempt.")
@click.option("--follow", "-f", "following", is_flag=True, help="Follow what is said, until it stops.")
def log(
    session: CliSession,
    wanted: str,
    project: str | None,
    place: str | None,
    attempt: int | None,
    following: bool,
) -> None:
    """Print what was said and done in the attempts of a protocol.

    That of the planner comes first (`--step plan`), then that of each step, attempt by attempt. With --json it is a
    list of attempts, each with its verdict, its use, its sessions and its log; with --follow, a line for each event.
    """
    if attempt is not None and place is None:
        raise Misuse("--attempt needs --step", hint="--step NN says whose attempt is meant")
    with existing_ledger(session) as ledger:
        with ledger.read() as tx:
            protocol = protocol_named(tx, wanted, project=project)
            chosen = _chosen(tx, protocol, place, attempt)
            told = [(step, tried, _whole(tx, tried)) for step, tried in chosen]
            after = max((offset for _, _, (_, offset) in told), default=0)
            records = attempt_answers(tx, [tried for _, tried in chosen]) if session.json else []
        if session.json and not following:
            print_document(
                [
                    {**record(said), "step_name": step.name, "log": text}
                    for said, (step, _, (text, _)) in zip(records, told, strict=True)
                ]
            )
            return
        if not session.json:
            for step, tried, (text, _) in told:
                print(_heading(step, tried))
                print_foreign(text.removesuffix("\n"))
        if following:
            steps = {step.id for step, _ in chosen} if place is not None else None
            _follow(session, ledger, protocol, after, steps)
        elif not told:
            note(f"Protocol {protocol.run_id} has no attempts yet; it is {protocol.status}.")


def _chosen(
    tx: Transaction, protocol: Protocol, place: str | None, attempt: int | None
) -> list[tuple[Step, Attempt]]:
    steps = list_steps(tx, protocol.run_id)
    if place is not None:
        index = {each.step_id: each.step_index for each in list_protocol_steps(tx, protocol.run_id)}
        wanted = int(place) if place.isascii() and place.isdecimal() else None
        found = [
            step
            for step in steps
            if step.name == place or (wanted is not None and index.get(step.id) == wanted)
        ]
        if not found:
            error = NotFound(f"step of protocol {protocol.run_id}", repr(place[:80]))
            error.hint = f"it has: {', '.join(step.name for step in steps) or 'none yet'}"
            raise error
        steps = found
    tries = [(step, each) for step in steps for each in list_attempts(tx, step.id)]
    return [(step, each) for step, each in tries if attempt in (None, each.number)]


def _whole(tx: Transaction, attempt: Attempt) -> tuple[str, int]:
    """The log of an attempt so far, and where it continues."""
    parts, offset = [], 0
    while (part := read_log(tx, attempt.id, offset=offset, max_bytes=_PART)).chunk:
        parts.append(part.chunk)
        offset = part.next_offset
    return "".join(parts), offset


def _follow(
    session: CliSession, ledger: Ledger, protocol: Protocol, after: int, steps: Container[int] | None
) -> None:
    with ledger.read() as tx:
        if get_run(tx, protocol.run_id).status.stands:
            note(f"Protocol {protocol.run_id} is {protocol.status}: nothing is said now.")
            return
    with interrupted() as stop:
        for event in follow(ledger, after, where=EventFilter(run_id=protocol.run_id), stop=stop):
            if event.attempt_id is not None and (steps is None or event.step_id in steps):
                _print(session, event)
            if event.type.startswith("run."):
                with ledger.read() as tx:
                    if get_run(tx, protocol.run_id).status.stands:
                        return


def _print(session: CliSession, event: Event) -> None:
    if session.json:
        print_line(record(event))
    else:
        print_foreign(log_line(event).removesuffix("\n"))


def _heading(step: Step, attempt: Attempt) -> str:
    how = "under way" if attempt.outcome is None else str(attempt.outcome)
    reason = f": {one_line(attempt.reason)}" if attempt.reason else ""
    return f"== {one_line(step.name)}, attempt {attempt.number}: {how}{reason}"


def _counted(counts: Counter[StepStatus]) -> str | None:
    whole = counts.total()
    return f"{counts[StepStatus.COMPLETED]}/{whole}" if whole else None
