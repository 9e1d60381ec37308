"""The strict rule: any gain over the best is kept, however small. Pure, so that a history can be replayed by it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ratchet.kernel import Direction, TrialStatus


@dataclass(frozen=True, slots=True)
class Strict:
    """`delta` is the score less the best, whichever way is better; there is none where there is no number."""

    status: TrialStatus
    delta: float | None

    @property
    def kept(self) -> bool:
        return self.status is TrialStatus.KEEP

    @property
    def delta_text(self) -> str:
        return delta_text(self.delta)


def strict(score: float | None, best: float, direction: Direction) -> Strict:
    """Keep what is strictly better than `best`. A tie is discarded, and so is a score that is not a finite number."""
    if score is None or not math.isfinite(score):
        return Strict(TrialStatus.DISCARD, None)
    better = direction.gain(score, best) > 0
    return Strict(TrialStatus.KEEP if better else TrialStatus.DISCARD, score - best)


def delta_text(delta: float | None) -> str:
    """A difference as tables have it: signed, six decimals; empty where nothing was compared."""
    return "" if delta is None else f"{delta:+.6f}"
