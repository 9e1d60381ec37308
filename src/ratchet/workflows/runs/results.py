"""The results of a run: values of steps as the ledger keeps them, and the report for the command line and the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger import ArtifactStore, Run, Step, Transaction, to_json
from ratchet.ledger.runs import get_run, list_steps

INLINE_BYTES = 64 * 1024


def keep_value(
    tx: Transaction, artifacts: ArtifactStore, value: Any, *, run_id: int, name: str
) -> dict[str, Any]:
    """What stands for `value` in a row."""
    text = to_json(value)
    if len(text) <= INLINE_BYTES:
        return {"value": value}
    kept = artifacts.put(tx, text.encode(), name=f"{name}.json", media_type="application/json", run_id=run_id)
    return {"artifact": kept.sha256, "bytes": kept.size}


def read_value(artifacts: ArtifactStore, kept: Mapping[str, Any]) -> Any:
    """The value that `keep_value` has put away."""
    if "artifact" not in kept:
        return kept.get("value")
    return json.loads(artifacts.read(kept["artifact"]))


def report_run(
    tx: Transaction, artifacts: ArtifactStore, run_id: int, *, values: bool = False
) -> dict[str, Any]:
    """`status`, `outputs` and `steps` of a run, ended or not; the values of steps only if they are asked for."""
    run = get_run(tx, run_id)
    steps = list_steps(tx, run_id)
    return {
        "run_id": run.id,
        "workflow": run.name,
        "status": str(run.status),
        "simulated": run.simulated or run.used_recording,
        "error": run.reason if run.status in (RunStatus.FAILED, RunStatus.CANCELLED) else None,
        "outputs": read_outputs(artifacts, run),
        "steps": {step.name: _shown(artifacts, step, values=values) for step in steps},
    }


def read_outputs(artifacts: ArtifactStore, run: Run) -> dict[str, Any]:
    """The outputs of a run that has ended, also those that are there although it failed."""
    kept = (run.result or {}).get("outputs", {})
    return {name: read_value(artifacts, each) for name, each in kept.items()}


def step_record(step: Step) -> dict[str, Any]:
    """What became of a step, without its value."""
    kept = step.result or {}
    # A step that was not begun is cancelled in the ledger: because its condition did not hold, or others failed.
    skipped = step.status is StepStatus.CANCELLED
    return {
        "status": "skipped" if skipped else str(step.status),
        "metrics": kept.get("metrics", {}),
        "error": step.reason if step.status in (StepStatus.FAILED, StepStatus.BLOCKED) else None,
        "reason": step.reason if skipped else None,
        "hint": kept.get("hint"),
        "cached": kept.get("cached", False),
        "tries": kept.get("tries", 0),
    }


def _shown(artifacts: ArtifactStore, step: Step, *, values: bool) -> dict[str, Any]:
    shown = step_record(step)
    return {**shown, "value": read_value(artifacts, step.result or {})} if values else shown
