"""Remembering what made a tool better, for whoever plans with it or rewrites one like it."""

from __future__ import annotations

import contextlib

from ratchet.ledger import Run
from ratchet.memory import MemoryFault, open_memory
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime
from ratchet.workflows.evolution.wish import Evolved, Wish
from ratchet.workflows.remembering import remember_fix

_log = logger(__name__)


def remember_promotion(runtime: Runtime, run: Run, wish: Wish, evolved: Evolved) -> None:
    """Remember a promotion as the fix of what it was asked for. A simulated run teaches nothing."""
    if not evolved.promoted or run.simulated:
        return
    try:
        with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
            remember_fix(
                memory,
                run_id=run.id,
                sentence=f"make the tool {wish.tool} better",
                step=wish.tool,
                problem=wish.why or "it was to be better",
                fix=f"version {evolved.version}: {evolved.why}",
            )
    except MemoryFault as fault:
        # The promotion stands; what is lost is advice for the next one.
        _log.warning("a promotion is not remembered", run_id=run.id, error=str(fault))
