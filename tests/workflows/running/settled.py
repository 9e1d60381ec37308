"""Starting runs in tests, and waiting for what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.flowkit.spec import WorkflowSpec
from ratchet.ledger import Ledger
from ratchet.ledger.runs import get_run
from ratchet.runtime import Runtime
from ratchet.workflows.runs import prepare, report_run, start_workflow
from tests.waiting import eventually


def start(
    runtime: Runtime,
    spec: WorkflowSpec,
    inputs: dict[str, Any] | None = None,
    *,
    folder: Path | None = None,
    cached: bool = True,
    spread: bool = False,
    **more: Any,
) -> int:
    plan = prepare(runtime, spec, inputs or {}, folder=folder, cached=cached, spread=spread)
    with runtime.ledger.write(actor="test") as tx:
        return start_workflow(tx, runtime, plan, **more)


def settle(ledger: Ledger, run_id: int, seconds: float = 60.0) -> dict[str, Any]:
    """What a run has come to, once nothing more happens by itself."""

    def stands() -> bool:
        with ledger.read() as tx:
            return get_run(tx, run_id).status.stands

    eventually(stands)
    with ledger.read() as tx:
        return report_run(tx, ledger.artifacts, run_id, values=True)


def run(
    runtime: Runtime, spec: WorkflowSpec, inputs: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return settle(runtime.ledger, start(runtime, spec, inputs, **more))
