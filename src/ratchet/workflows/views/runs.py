"""Runs of workflows as they are shown: how they stand, what they gave, and what became of each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ratchet.kernel import NotFound, iso
from ratchet.ledger.runs import get_run, list_runs
from ratchet.tools.sandboxed import NOT_FOUND
from ratchet.workflows.runs.results import report_run

if TYPE_CHECKING:
    from ratchet.ledger import ArtifactStore, Run, Transaction

RUN_KIND = "workflow"


def workflow_runs(
    tx: Transaction, name: str | None = None, *, before: int | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """The runs of one workflow or of all, newest first; pass the last `run_id` as `before` for the next page."""
    return [run_record(run) for run in list_runs(tx, kind=RUN_KIND, name=name, before=before, limit=limit)]


def run_record(run: Run) -> dict[str, Any]:
    """A run in short. `action` says whether it ran a workflow, planned one, or made tools better."""
    return {
        "run_id": run.id,
        "workflow": run.name,
        "action": _action(run),
        "status": str(run.status),
        "reason": run.reason,
        "simulated": run.simulated,
        "used_recording": run.used_recording,
        "created_at": iso(run.created_at),
        "ended_at": None if run.ended_at is None else iso(run.ended_at),
    }


def outcome(tx: Transaction, artifacts: ArtifactStore, run_id: int) -> dict[str, Any]:
    """What a run has come to. One that ran a workflow has `outputs` and `steps`, any other one its `result`.

    Raises `NotFound` for a run of another kind.
    """
    run = get_run(tx, run_id)
    if run.kind != RUN_KIND:
        raise NotFound("run of a workflow", run_id)
    if _action(run) != "run":
        return {**run_record(run), "result": run.result}
    return {**run_record(run), **report_run(tx, artifacts, run_id)}


def lacks_program(found: Mapping[str, Any]) -> bool:
    """Whether a step of an `outcome` failed because something it needs is not on this machine."""
    steps = found.get("steps", {}).values()
    return any(step["status"] == "failed" and step["metrics"].get("exit_code") == NOT_FOUND for step in steps)


def _action(run: Run) -> str:
    if isinstance(run.spec, dict) and "workflow" in run.spec:
        return "run"
    # The others are called after what they do: `plan:…`, `evolve:…`, `optimise`.
    return run.name.partition(":")[0]
