"""What a person sees of a run while it goes on, read from the ledger at one moment. Drawing it is `terminal`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratchet.ledger.trial_pages import kept_scores, latest_points, latest_trials
from ratchet.research.views._status import Status, read_status
from ratchet.research.views.bests import in_force

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial

_LAST = 5
_SCORES = 60
_KEPT = 40


@dataclass(frozen=True, slots=True)
class Live:
    """`kept` and `recent` are scores, oldest first: of the best so far, and of the last trials that have one."""

    status: Status
    last: tuple[Trial, ...]
    kept: tuple[float, ...]
    recent: tuple[float, ...]
    now: int


def read_live(tx: Transaction, run_id: int) -> Live:
    """Raises `NotFound` when there is no such run, or it is not research."""
    status = read_status(tx, run_id)
    ended = [each for each in latest_trials(tx, run_id, limit=_LAST + len(status.in_flight)) if each.status]
    kept = [each.score for each in in_force(kept_scores(tx, run_id, limit=_KEPT)) if each.score is not None]
    points = [each for each in latest_points(tx, run_id, limit=_SCORES) if each.status and each.status.valid]
    recent = [each.score for each in points if each.score is not None]
    return Live(status, tuple(ended[:_LAST]), tuple(kept), tuple(reversed(recent)), tx.now)
