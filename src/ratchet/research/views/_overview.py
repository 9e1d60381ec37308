"""Runs on one line each: the best, where it began, what it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.kernel import Usage, exp_id, iso
from ratchet.ledger import usage as spending
from ratchet.ledger.research import Standing, standings
from ratchet.ledger.trial_pages import keep_counts, kept_scores
from ratchet.research.views.baseline import Baseline, baseline_of
from ratchet.research.views.bests import in_force
from ratchet.research.views.words import finite

if TYPE_CHECKING:
    from ratchet.ledger.runs import Run
    from ratchet.ledger.transaction import Transaction

Kept = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """`kept` are the numbers and scores that the best had, the newest of them, oldest first, from the baseline on."""

    run: Run
    standing: Standing
    baseline: Baseline | None
    keeps: int
    kept: Kept
    usage: Usage

    @property
    def last(self) -> int:
        """The number of the last trial."""
        return max(0, self.standing.next_number - 1)

    @property
    def gained(self) -> float | None:
        """How much better the best is than the baseline."""
        if self.baseline is None or self.standing.best_score is None:
            return None
        return self.standing.direction.gain(self.standing.best_score, self.baseline.score)

    def to_dict(self) -> dict[str, Any]:
        run, standing = self.run, self.standing
        return {
            "run": run.id,
            "name": run.name,
            "status": str(run.status),
            "simulated": run.simulated or run.used_recording,
            "created_at": iso(run.created_at),
            "task": standing.task,
            "score_field": standing.score_field,
            "direction": str(standing.direction),
            "best": None if standing.best is None else exp_id(standing.best),
            "best_score": finite(standing.best_score),
            "baseline_score": None if self.baseline is None else self.baseline.score,
            "gained": finite(self.gained),
            "trials": standing.trials,
            "keeps": self.keeps,
            "cost_usd": self.usage.whole_cost_usd,
            "tokens": self.usage.tokens,
            "active_seconds": standing.active_ms / 1000,
        }


def overview(tx: Transaction, runs: Sequence[Run], *, keeps: int = 100) -> list[Overview]:
    """These runs, in their order; those that are not research are left out. Reads `keeps` of what each has kept."""
    numbers = [run.id for run in runs]
    found, counts = standings(tx, numbers), keep_counts(tx, numbers)
    used = spending.totals(tx, "run", numbers)
    return [
        Overview(
            run=run,
            standing=found[run.id],
            baseline=baseline_of(tx, found[run.id]),
            keeps=counts[run.id],
            kept=_kept(tx, run.id, keeps),
            usage=used[run.id],
        )
        for run in runs
        if run.id in found
    ]


def _kept(tx: Transaction, run_id: int, limit: int) -> Kept:
    newest = kept_scores(tx, run_id, limit=limit)
    found = ((each.number, finite(each.score)) for each in in_force(newest))
    return tuple((number, score) for number, score in found if score is not None)
