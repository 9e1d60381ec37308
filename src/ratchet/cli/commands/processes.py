"""`ratchet processes`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import show_list
from ratchet.cli.words import age
from ratchet.operations import record
from ratchet.runtime import list_processes

if TYPE_CHECKING:
    from ratchet.cli.session import Session


@command(
    examples=["ratchet processes", "ratchet processes --json | jq -r '.[].host'"], see=["worker", "serve"]
)
@click.pass_obj
def processes(session: Session) -> None:
    """List the servers and workers on this ledger.

    On all machines. One that has not said for a while that it lives is taken for dead, and its jobs are handed on.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_processes(tx)
    show_list(
        session,
        found,
        {
            "process": lambda process: process.id,
            "role": lambda process: process.role,
            "host": lambda process: process.host,
            "pid": lambda process: str(process.pid),
            "state": lambda process: process.state,
            "busy": lambda process: f"{process.busy}/{process.slots}",
            "started": lambda process: age(process.started_at),
            "last beat": lambda process: age(process.beat_at),
            "version": lambda process: process.version,
        },
        # Metrics are for /metrics, the identity and the count of beats for other processes.
        record=lambda process: record(process, without=("metrics", "identity", "beat")),
        empty="No process works on this ledger. `ratchet serve` or `ratchet worker` starts one.",
    )
