"""`ratchet usage`"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import note, print_document
from ratchet.cli.params import Number
from ratchet.cli.session import CliSession
from ratchet.kernel import dollars
from ratchet.ledger.attention import usage_report

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
