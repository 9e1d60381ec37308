"""Runs side by side: what each has reached, and what it had reached after so many trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import kept_scores
from ratchet.research.views._overview import Overview, overview
from ratchet.research.views.bests import in_force
from ratchet.research.views.words import finite

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction

KEEPS = 2000
_BUDGETS = 8
# Among so many that were kept next to each other the one that was kept last is looked for.
_SIDE_BY_SIDE = 50


@dataclass(frozen=True, slots=True)
class Compared:
    """`after` is the best score after each of the budgets; nothing where the run did not get as far."""

    run: Overview
    after: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**self.run.to_dict(), "after": list(self.after)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`budgets` are numbers of trials."""

    budgets: tuple[int, ...]
    rows: tuple[Compared, ...]

    @property
    def alike(self) -> bool:
        """Whether all of them have the same score, so that they can be compared at all."""
        scores = {(row.run.standing.score_field, row.run.standing.direction) for row in self.rows}
        return len(scores) <= 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "budgets": list(self.budgets),
            "alike": self.alike,
            "runs": [row.to_dict() for row in self.rows],
        }


def compare(tx: Transaction, run_ids: Sequence[int]) -> Comparison:
    """Raises `NotFound` when one of them does not exist. The cost does not grow with the length of the runs."""
    found = overview(tx, [get_run(tx, run_id) for run_id in run_ids], keeps=KEEPS)
    budgets = _budgets(max((each.last for each in found), default=0))
    rows = (Compared(each, tuple(_best_after(tx, each, budget) for budget in budgets)) for each in found)
    return Comparison(budgets, tuple(rows))


def _budgets(longest: int) -> tuple[int, ...]:
    """Round numbers up to the length of the longest run, and that."""
    rounded = [step * 10**power for power in range(1, 8) for step in (1, 2, 5)]
    return (*[each for each in rounded if each < longest][-_BUDGETS:], longest) if longest else ()


def _best_after(tx: Transaction, run: Overview, trials: int) -> float | None:
    if run.last < trials:
        return None
    newest = in_force(kept_scores(tx, run.run.id, before=trials + 1, limit=_SIDE_BY_SIDE))
    return finite(newest[-1].score) if newest else None
