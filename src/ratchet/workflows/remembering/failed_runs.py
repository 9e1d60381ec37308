"""Remembering runs of workflows that failed, for whoever plans something similar."""

from __future__ import annotations

import contextlib

from ratchet.flowkit.execution import Executed
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.ledger import Run
from ratchet.memory import MemoryFault, open_memory
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime
from ratchet.workflows.remembering.lessons import remember_failure

_log = logger(__name__)


def remember_failed_run(runtime: Runtime, run: Run, spec: WorkflowSpec, done: Executed) -> None:
    """Remember the first step that failed and why. A simulated run teaches nothing."""
    failed = [(name, each.error) for name, each in done.steps.items() if each.status == "failed"]
    if run.simulated or not failed:
        return
    step, error = failed[0]
    try:
        with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
            remember_failure(
                memory,
                run_id=run.id,
                sentence=spec.description or spec.workflow_id,
                step=step,
                reason=error or "no reason is known",
                workflow=spec.workflow_id,
                tags=spec.tags,
            )
    except MemoryFault as fault:
        # The run has failed either way; what is lost is advice for the next plan.
        _log.warning("a failed run is not remembered", run_id=run.id, error=str(fault))
