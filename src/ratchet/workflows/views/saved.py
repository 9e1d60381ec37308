"""Saved workflows as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.kernel import iso
from ratchet.ledger.workflows import SavedWorkflow, get_workflow, list_workflows
from ratchet.workflows.views.runs import workflow_runs

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

_LAST_RUNS = 5


def workflows(tx: Transaction, *, before: int | None = None, limit: int = 50) -> list[dict[str, Any]]:
    """The workflows as they are run, the last saved first, each with its last run."""
    return [
        {**workflow_record(saved), "last_run": _last_run(tx, saved.name)}
        for saved in list_workflows(tx, before=before, limit=limit)
    ]


def one_workflow(tx: Transaction, name: str) -> dict[str, Any]:
    """A saved workflow with its spec, its waves and its last runs. Raises `NotFound`."""
    # Loaded here: a list needs no specs.
    from ratchet.flowkit.graph import waves
    from ratchet.flowkit.reader import read_spec

    saved = get_workflow(tx, name)
    return {
        **workflow_record(saved),
        "spec": saved.spec,
        "waves": waves(read_spec(saved.spec)),
        "runs": workflow_runs(tx, name, limit=_LAST_RUNS),
    }


def workflow_record(saved: SavedWorkflow) -> dict[str, Any]:
    """A saved workflow in short. `origin` says where it came from."""
    steps = saved.spec.get("steps") if isinstance(saved.spec, dict) else None
    return {
        "id": saved.id,
        "name": saved.name,
        "version": saved.version,
        "hash": saved.hash,
        "description": saved.description,
        "origin": saved.origin,
        "steps": len(steps) if isinstance(steps, list | dict) else 0,
        "planned_by": saved.run_id,
        "created_at": iso(saved.created_at),
    }


def _last_run(tx: Transaction, name: str) -> dict[str, Any] | None:
    last = workflow_runs(tx, name, limit=1)
    return last[0] if last else None
