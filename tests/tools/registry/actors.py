"""What other processes do to a toolbox in these tests."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from ratchet.config import load_settings
from ratchet.ledger import Ledger
from ratchet.tools.invocation import ToolRateLimited, check_constraints
from ratchet.tools.registry import open_toolbox


def open_and_call(pipe: Connection, url: str, artifacts: Path, home: Path, times: int) -> None:
    """Open the toolbox as soon as it is told to, then start a tool that may not be started so often."""
    settings = load_settings({"home": str(home), "database_url": url}, env={}).settings
    with Ledger.open(url, artifacts) as ledger:
        pipe.send("ready")
        pipe.recv()
        toolbox = open_toolbox(ledger, settings, home)
        found = toolbox.get("my_0")
        started = 0
        for _ in range(times):
            try:
                with ledger.write() as tx:
                    check_constraints(tx, found.tool_id, found.tool)
                started += 1
            except ToolRateLimited:
                pass
        pipe.send((len(toolbox.list()), found.version, started))
        toolbox.close()
