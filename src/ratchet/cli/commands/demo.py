"""`ratchet demo`"""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from ratchet.cli.command import command
from ratchet.cli.opening import configure_logs, existing_ledger
from ratchet.cli.records import print_document, record
from ratchet.cli.session import Session
from ratchet.demo import run_demo
from ratchet.demo.primes import RUN_NAME
from ratchet.demo.show import summarise
from ratchet.ledger.runs import list_runs


@command()
@click.pass_obj
def demo(session: Session) -> int:
    """Watch a durable run, and see it survive a kill.

    A worker counts primes in durable steps and is killed in the middle; a second one goes on from the ledger. With
    --json the story goes to stderr.
    """
    loaded = session.load()
    configure_logs(loaded)
    code = run_demo(loaded, out=sys.stderr if session.json else sys.stdout)
    if session.json:
        _print_summary(session)
    return code


def _print_summary(session: Session) -> None:
    with existing_ledger(session) as ledger:
        with ledger.read() as tx:
            [run] = list_runs(tx, name=RUN_NAME, limit=1)
        summary = summarise(ledger, run.id)
    print_document({**asdict(summary), "run": record(summary.run)})
