"""One trial with all that is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.kernel import exp_id
from ratchet.research.views.row import record

if TYPE_CHECKING:
    from ratchet.ledger.trial_rows import Trial


def whole(trial: Trial) -> dict[str, Any]:
    """A trial as JSON, nothing cut: what tables show of it, and what they have no room for."""
    return {
        **record(trial),
        "number": trial.number,
        "depth": trial.depth,
        "hypothesis": trial.hypothesis,
        "notes": trial.notes,
        "reason": trial.reason,
        "compared_to": None if trial.compared_to is None else exp_id(trial.compared_to),
        "measurements": trial.measurements,
        "evaluator": trial.evaluator,
        "certificate": trial.certificate,
        "attempt_id": trial.attempt_id,
        "tries": trial.tries,
        "imported": trial.imported,
    }
