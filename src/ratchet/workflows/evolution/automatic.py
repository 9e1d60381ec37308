"""Rewriting tools by themselves: after a run, those that it used and that have become worse."""

from __future__ import annotations

from collections.abc import Collection

from ratchet.kernel import RatchetError, RunId
from ratchet.ledger.tools import tools_by_id
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime
from ratchet.workflows.evolution.looking import note_look, should_evolve
from ratchet.workflows.evolution.starting import evolve_tool

_log = logger(__name__)


def evolve_what_declined(runtime: Runtime, tool_ids: Collection[int], *, actor: str) -> list[RunId]:
    """Start a rewriting for each of these tools that the rules call for, if the settings allow it."""
    settings = runtime.settings.workflows.evolution
    if not settings.auto:
        return []
    wanted = []
    with runtime.ledger.write(actor=actor) as tx:
        for row in tools_by_id(tx, sorted(tool_ids)).values():
            decision = should_evolve(tx, row, settings, tx.now)
            if decision.yes:
                # Remembered here and now, so that of two runs that end at once only one sees to it.
                note_look(tx, row, decision)
                wanted.append((row, decision.why))
    started = []
    for row, why in wanted:
        try:
            started.append(evolve_tool(runtime, row.name, folder=row.folder, why=why, actor=actor))
        except RatchetError as error:
            _log.warning("a tool that became worse is not rewritten", tool=row.name, error=str(error))
    return started
