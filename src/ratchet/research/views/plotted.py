"""Which trials of a run a plot shows: all of a short one, of a long one a sample and what was kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratchet.kernel import TrialStatus
from ratchet.ledger.trial_pages import Point, kept_lines, points_at
from ratchet.research.views.bests import in_force

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial

_KEEPS = 300
_BESTS = (TrialStatus.BASELINE, TrialStatus.KEEP)


@dataclass(frozen=True, slots=True)
class Plotted:
    """What the plot shows: some trials, evenly picked if there are too many, and the newest of what was kept."""

    points: tuple[Point, ...]
    kept: tuple[Trial, ...]
    last: int
    sampled: bool

    @property
    def bests(self) -> list[tuple[int, float]]:
        """The best so far and when, as far as it is shown: picked evenly at first, completely at the end."""
        known: dict[int, Trial | Point] = {each.number: each for each in self.kept}
        known |= {each.number: each for each in self.points if each.status in _BESTS}
        return [(each.number, each.score) for each in in_force(known.values()) if each.score is not None]

    @property
    def note(self) -> str:
        if not self.sampled:
            return f"All {self.last + 1:,} rows are shown, the baseline among them."
        return (
            f"A sample: {len(self.points):,} of {self.last + 1:,} rows, evenly picked by number, "
            f"and the newest {len(self.kept):,} that were kept."
        )


def plotted(tx: Transaction, run_id: int, next_number: int, most: int, *, keeps: int = _KEEPS) -> Plotted:
    """At most `most` trials and `keeps` that were kept, whatever the length of the run."""
    last = max(0, next_number - 1)
    sampled = next_number > most
    picked = [round(at * last / (most - 1)) for at in range(most)] if sampled else list(range(next_number))
    points = tuple(points_at(tx, run_id, picked))
    kept = tuple(reversed(kept_lines(tx, run_id, limit=keeps)))
    return Plotted(points, kept, last, sampled)
