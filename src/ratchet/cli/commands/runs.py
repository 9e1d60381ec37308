"""How a run is shown in a terminal: with what it has used, and its steps; and `ratchet usage`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ratchet.cli.operation import CliCall, looking_like, show_answer, shown
from ratchet.cli.output import note, show_one
from ratchet.cli.words import cost_words, span
from ratchet.kernel import Usage
from ratchet.ledger.artifacts import of_run
from ratchet.ledger.runs import list_attempts, list_steps
from ratchet.operations import record
from ratchet.runtime.operations import approvals, runs
from ratchet.runtime.processes import is_cut_off

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.ledger import Attempt, Run, Step
    from ratchet.ledger.questions import Approval


import operator
from collections.abc import Callable, Mapping
from typing import Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import print_document
from ratchet.cli.params import Number
from ratchet.cli.session import CliSession
from ratchet.kernel import dollars
from ratchet.ledger.attention import usage_report

_HERE = ("protocol", "research")
"""Kinds of runs that a command resumes in the foreground."""


@looking_like(runs.show)
def show(session: CliSession, call: CliCall, run: Run) -> None:
    """With --json everything that is recorded of it."""
    # Loaded here: it needs tables that the list does not.
    from ratchet.ledger.usage import total

    with call.read() as tx:
        steps = [(step, list_attempts(tx, step.id)) for step in list_steps(tx, run.id)]
        used = total(tx, "run", run.id)
        artifacts = of_run(tx, run.id)
        cut_off = is_cut_off(tx, run)
    document = {
        **record(run),
        "usage": {**asdict(used), "cost_usd": used.whole_cost_usd},
        "steps": [{**record(step), "attempts": [record(each) for each in tries]} for step, tries in steps],
        "artifacts": [record(each) for each in artifacts],
    }
    fields = {**shown(runs.show.columns, run), "used": _used(used), "artifacts": len(artifacts) or None}
    show_one(session, document, fields)
    if steps and not session.json:
        print()
        _print_steps(steps)
    if cut_off and not session.json:
        here = f"`ratchet {run.kind} resume {run.id}` or " if run.kind in _HERE else ""
        note(f"The process that worked on it is gone: {here}`ratchet worker` resumes it.")


@looking_like(runs.resume)
def resume(session: CliSession, call: CliCall, run: Run) -> None:
    """With the command that works on it here, if no worker does."""
    # Loaded here: `show` needs nothing of it.
    from ratchet.cli.protocol_work import note_workers

    show_answer(session, runs.resume, run)
    here = f", and `ratchet {run.kind} resume {run.id}` resumes it here and now" if run.kind in _HERE else ""
    note_workers(session, call.ledger, here)


def _decided(session: CliSession, call: CliCall, approval: Approval) -> None:
    """With who does the rest of the run, if no worker does."""
    from ratchet.cli.protocol_work import note_workers

    show_answer(session, approvals.approve, approval)
    if approval.run_id is not None:
        note_workers(session, call.ledger)


approve = looking_like(approvals.approve)(_decided)
refuse = looking_like(approvals.refuse)(_decided)


def _print_steps(steps: list[tuple[Step, list[Attempt]]]) -> None:
    from ratchet.cli.tables import print_table

    print_table(
        steps,
        {
            "step": lambda each: each[0].id,
            "name": lambda each: each[0].name,
            "status": lambda each: each[0].status,
            "attempts": lambda each: len(each[1]),
            "took": lambda each: _took(each[1]),
            "reason": lambda each: each[0].reason,
        },
    )


def _took(tries: list[Attempt]) -> str | None:
    """How long the last attempt took, or has taken."""
    return span(tries[-1].started_at, tries[-1].ended_at) if tries else None


def _used(used: Usage) -> str | None:
    if used == Usage():
        return None
    return f"{used.tokens} tokens, {cost_words(used)}, {used.wall_seconds:.1f} s, {used.trials} trials"


Row = Mapping[str, Any]


@command(
    examples=["ratchet usage", "ratchet usage --days 7", "ratchet usage --json | jq .known_cost_usd"],
    see=["runs show", "research cost", "console"],
)
@click.option(
    "--days",
    type=Number(1, 366),
    default=30,
    show_default=True,
    metavar="N",
    help="How far back, today included.",
)
def usage(session: CliSession, days: int) -> None:
    """Show what engines used and what it cost, by engine and model and by run.

    The same figures as the console's page. A cost that is not known is said to be unknown, and counts as nothing in
    known_cost_usd; what was replayed from a recording was not paid for.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = usage_report(tx, days)
    if session.json:
        print_document(found)
        return
    if not found["by_day"]:
        note("Nothing was used. What engines use is summed here by engine, model and run.")
        return
    from ratchet.cli.tables import print_table

    period = "day" if days == 1 else f"{days} days"
    print(f"In the last {period}: {_cost(found['total'], found['known_cost_usd'])}\n")
    print_table(
        found["by_engine"], {"engine": _name("engine"), "model": operator.itemgetter("model"), **_AMOUNTS}
    )
    print()
    runs: Mapping[str, Callable[[Row], object]] = {
        "run": operator.itemgetter("run_id"),
        "kind": operator.itemgetter("kind"),
        "name": _name("name"),
    }
    print_table(found["by_run"], {**runs, **_AMOUNTS})


def _name(column: str) -> Callable[[Row], object]:
    return lambda row: f"{row[column]} (simulated)" if row["simulated"] else row[column]


def _cost(row: Row, known: float = 0.0) -> str:
    if row["cost_usd"] is not None:
        return dollars(row["cost_usd"])
    return f"over {dollars(known)}" if known else "unknown"


_AMOUNTS: Mapping[str, Callable[[Row], object]] = {
    "tokens in": operator.itemgetter("input_tokens"),
    "cached": operator.itemgetter("cached_tokens"),
    "tokens out": operator.itemgetter("output_tokens"),
    "cost": _cost,
    "time": lambda row: f"{row['wall_seconds']:.1f}s",
    "trials": operator.itemgetter("trials"),
}
