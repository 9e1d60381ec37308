"""What the run began with, and how much its score moves by itself."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.kernel import exp_id
from ratchet.ledger.trials import find_trial
from ratchet.research.views.words import finite

if TYPE_CHECKING:
    from ratchet.ledger.research import Standing
    from ratchet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Baseline:
    """`sd` is the spread of `n` measurements of the same commit; unknown when it was measured once."""

    score: float
    sd: float | None
    n: int

    @property
    def noise(self) -> float:
        """How far a score moves although nothing has changed. Nought where nobody has seen it move."""
        return self.sd or 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"exp_id": exp_id(0), "score": self.score, "sd": self.sd, "n": self.n}


def baseline_of(tx: Transaction, standing: Standing) -> Baseline | None:
    """The baseline as the run has it; nothing before it was measured."""
    kept = dict(standing.baseline or {})
    samples = [each for each in map(finite, _list(kept.get("samples"))) if each is not None]
    score = finite(kept.get("score"))
    if score is None and samples:
        score = statistics.fmean(samples)
    if score is None:
        first = find_trial(tx, standing.run_id, 0)
        score = None if first is None else finite(first.score)
    if score is None:
        return None
    sd = finite(kept.get("sd"))
    if sd is None and len(samples) > 1:
        sd = statistics.stdev(samples)
    n = finite(kept.get("n"))
    return Baseline(score, sd, max(1, len(samples)) if n is None else int(n))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
