"""What was asked of an agent's Architect, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.agents.jobs import RUN_KIND
from ratchet.agents.views.words import bounded
from ratchet.kernel import iso
from ratchet.ledger.runs import list_runs

if TYPE_CHECKING:
    from ratchet.ledger import Run, Transaction


def agent_runs(
    tx: Transaction, name: str, *, before: int | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """The runs on the agent of that name, newest first; pass the last `run` as `before` for the next page.

    A name that was given again after a deletion has the runs of both.
    """
    return [run_record(run) for run in list_runs(tx, kind=RUN_KIND, name=name, before=before, limit=limit)]


def run_record(run: Run) -> dict[str, Any]:
    """A creation or a feedback as JSON. `result` says what was decided, once it is completed."""
    spec = run.spec if isinstance(run.spec, dict) else {}
    return {
        "run": run.id,
        "action": spec.get("action"),
        "status": str(run.status),
        "reason": bounded(run.reason),
        "message": bounded(spec.get("message")),
        "severity": spec.get("severity"),
        "source": spec.get("source"),
        "result": run.result,
        "simulated": run.simulated,
        "used_recording": run.used_recording,
        "created_at": iso(run.created_at),
        "ended_at": None if run.ended_at is None else iso(run.ended_at),
    }
