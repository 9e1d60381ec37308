"""Which way a score is better, found out from what was kept."""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.kernel import Direction, Misuse, TrialStatus
from ratchet.research.exchange.rows import Row

# The scores of the tasks that came with the original.
_KNOWN = {"val_bpb": Direction.MIN, "train_s": Direction.MIN, "core_metric": Direction.MAX}


def infer_direction(rows: Iterable[Row], score: str) -> Direction:
    """Raises `Misuse` when the rows contradict each other or say nothing."""
    kept: set[Direction] = set()
    missed: set[Direction] = set()
    for row in rows:
        if row.delta:
            better = Direction.MAX if row.delta > 0 else Direction.MIN
            if row.status is TrialStatus.KEEP:
                kept.add(better)
            elif row.status is TrialStatus.DISCARD:
                missed.add(Direction.MIN if better is Direction.MAX else Direction.MAX)
    for told in (kept, missed):
        if len(told) == 1:
            return told.pop()
        if told:
            break
    if score in _KNOWN and not kept:
        return _KNOWN[score]
    why = (
        "some better scores are higher and some lower" if kept or missed else "nothing was kept or discarded"
    )
    raise Misuse(
        f"the rows do not tell whether a higher or a lower {score} is better: {why}",
        hint="say it: direction min or max",
    )
