"""Starting a run of a workflow."""

from __future__ import annotations

from ratchet.kernel import RunId
from ratchet.ledger import Transaction
from ratchet.runtime import Runtime, start_run
from ratchet.runtime.job import BACKGROUND, DEFAULT_PRIORITY
from ratchet.workflows.kinds import RUN
from ratchet.workflows.running.plan import RunPlan


def start_workflow(
    tx: Transaction,
    runtime: Runtime,
    plan: RunPlan,
    *,
    simulated: bool = False,
    priority: int | None = None,
    background: bool = False,
    project_id: int | None = None,
    line: str | None = None,
    once: str | None = None,
) -> RunId:
    """A run of a plan that `prepare` has made, and the job that carries it. In the background it gives way.

    See `start_run` for `line` and `once`.
    """
    if priority is None:
        priority = BACKGROUND if background else DEFAULT_PRIORITY
    return start_run(
        tx,
        runtime,
        RUN,
        kind="workflow",
        name=plan.spec.workflow_id,
        spec=plan.data(),
        project_id=project_id,
        simulated=simulated,
        priority=priority,
        line=line,
        once=once,
    )
