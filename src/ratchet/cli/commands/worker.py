"""`ratchet worker`"""

from __future__ import annotations

import click

from ratchet.cli.command import command
from ratchet.cli.params import COUNT
from ratchet.cli.session import CliSession, configure_logs
from ratchet.runtime import work


@command(
    examples=["ratchet worker", "ratchet worker --slots 8 --log-format json"],
    see=["serve", "processes", "queue list"],
)
@click.option("--slots", type=COUNT, metavar="N", help="Jobs to do at once; runtime.slots if not given.")
def worker(session: CliSession, slots: int | None) -> None:
    """Run jobs until stopped.

    Several workers may share a ledger, on several machines if it is PostgreSQL. SIGTERM or Ctrl-C drains: nothing new
    is taken, and what runs may finish for runtime.drain_seconds. A second one ends at once; other workers then take the
    jobs over. Logs go to stderr.
    """
    loaded = session.load({"runtime.slots": slots})
    configure_logs(loaded)
    work(loaded)
