"""What else a run's evaluator measures that is worth a column beside the score."""

from __future__ import annotations

from ratchet.ledger import Run, Transaction
from ratchet.ledger.runs import get_run
from ratchet.research.exchange import Layout
from ratchet.research.views import Leaderboard, leaderboard
from ratchet.research.views._leaderboard import TOP


def columns_of(run: Run) -> tuple[str, ...]:
    """What its task names, or, of an imported run, what its file has."""
    imported = run.spec.get("imported")
    if imported is not None:
        return Layout(tuple(imported["columns"]), imported["score_field"]).measured
    return tuple(run.spec.get("columns", ()))


def leaderboard_of(tx: Transaction, run_id: int, *, limit: int = TOP) -> Leaderboard:
    """The leaderboard with the run's own columns."""
    return leaderboard(tx, run_id, limit=limit, columns=columns_of(get_run(tx, run_id)))
