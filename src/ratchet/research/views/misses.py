"""Near misses: trials with a score as good as the best, or nearly, that were not kept. Often one step from a keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.ledger import trial_pages as ledger
from ratchet.ledger.research import Standing, get_standing
from ratchet.research.views.baseline import Baseline, baseline_of
from ratchet.research.views.row import record, status_of, why
from ratchet.research.views.words import cell, number, signed, table

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial

# Nearly as good is within twice the noise, or, where there is none, within a hundredth of what the run has gained.
_NOISES = 2.0
_SHARE = 0.01
_TEXT = 100


@dataclass(frozen=True, slots=True)
class NearMisses:
    """`margin` is how far a score may fall short of the best to count. `rows` come best first."""

    standing: Standing
    margin: float
    rows: tuple[Trial, ...]

    def gain(self, trial: Trial) -> float:
        """How much better than the best it is; below nought when it is worse."""
        best = self.standing.best_score
        if trial.score is None or best is None:
            return 0.0
        return self.standing.direction.gain(trial.score, best)

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {**record(each), "gain_vs_best": self.gain(each), "why": why(each, 300)} for each in self.rows
        ]

    def to_markdown(self) -> str:
        if not self.rows:
            return "No near misses."
        field = cell(self.standing.score_field, 40)
        columns = ("exp", field, "better than best by", "status", "specialist", "hypothesis", "why not kept")
        return "\n".join(table(columns, [self._cells(each) for each in self.rows]))

    def _cells(self, trial: Trial) -> list[str]:
        return [
            trial.exp_id,
            number(trial.score),
            signed(self.gain(trial)),
            status_of(trial),
            cell(trial.specialist, 40),
            cell(trial.hypothesis, _TEXT),
            why(trial, 160),
        ]


def near_misses(
    tx: Transaction, run_id: int, *, limit: int = 10, standing: Standing | None = None
) -> NearMisses:
    standing = standing or get_standing(tx, run_id)
    if standing.best_score is None:
        return NearMisses(standing, 0.0, ())
    found = ledger.near_misses(tx, run_id, standing.direction, limit=limit)
    return nearest(standing, baseline_of(tx, standing), found)


def nearest(standing: Standing, baseline: Baseline | None, trials: Iterable[Trial]) -> NearMisses:
    """Those of `trials`, which have a score and were not kept, that are nearly as good as the best."""
    best = standing.best_score
    if best is None:
        return NearMisses(standing, 0.0, ())
    margin = _margin(standing, best, baseline)
    gain = standing.direction.gain
    near = [
        (-found, each.number, each)
        for each in trials
        if each.score is not None and (found := gain(each.score, best)) >= -margin
    ]
    return NearMisses(standing, margin, tuple(each for _, _, each in sorted(near)))


def _margin(standing: Standing, best: float, baseline: Baseline | None) -> float:
    if baseline is None:
        return 0.0
    if baseline.noise:
        return _NOISES * baseline.noise
    return _SHARE * abs(standing.direction.gain(best, baseline.score))
