"""What a specialist should notice about its own trials before it makes another."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from ratchet.kernel import TrialStatus
from ratchet.research.views.words import cell, number

if TYPE_CHECKING:
    from ratchet.ledger.trial_rows import Trial

SATURATED_AFTER = 5
_LOOKED_AT = 400
_OF_NO_WORD = re.compile(r"[^\w.+-]|_")


@dataclass(frozen=True, slots=True)
class Repeated:
    """One idea that was submitted several times, oldest first."""

    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        said = ", ".join(f"{each.exp_id} {each.status or 'running'}" for each in self.trials[:6])
        return f"Submitted {len(self.trials)} times ({said}): {cell(self.trials[0].hypothesis, 120)}"


def saturation(own: Sequence[Trial], noise: float) -> str | None:
    """Advice for a specialist whose last trials, newest first in `own`, all moved the score by no more than noise."""
    ended = (each for each in own if each.status is not None and each.status.tried)
    last = list(islice(ended, SATURATED_AFTER))
    if len(last) < SATURATED_AFTER or any(each.status is TrialStatus.KEEP for each in last):
        return None
    moves = [abs(each.delta) for each in last if each.delta is not None]
    if not moves:
        return (
            f"None of your last {SATURATED_AFTER} trials has a valid score. Find out why from their reasons, "
            "and make the next change small enough that it must run."
        )
    if max(moves) > noise:
        return None
    moved = f"more than this run's own noise ({number(noise)})" if noise else "at all"
    return (
        f"None of your last {SATURATED_AFTER} trials moved the score {moved}. This direction is used up: start from "
        "another trial, combine a near miss with the best, or change something of another kind."
    )


def repeated(trials: Iterable[Trial], *, limit: int = 3) -> list[Repeated]:
    """Ideas that were submitted more than once, the most often repeated first."""
    different = {each.number: each for each in trials if each.status is not TrialStatus.BASELINE}
    ideas = {at: _idea(each.hypothesis) for at, each in different.items()}
    if len(set(ideas.values())) == len(ideas):
        return []
    groups: dict[tuple[str, ...], dict[int, Trial]] = defaultdict(dict)
    for at, idea in ideas.items():
        groups[idea][at] = different[at]
    again = [group for idea, group in groups.items() if idea and len(group) > 1]
    again.sort(key=lambda group: (len(group), max(group)), reverse=True)
    return [Repeated(tuple(group[at] for at in sorted(group))) for group in again[:limit]]


@lru_cache(maxsize=2048)
def _idea(hypothesis: str) -> tuple[str, ...]:
    """What a hypothesis says, however it is spaced, capitalised and punctuated. Numbers stay: 0.1 is not 0.2."""
    plain = _OF_NO_WORD.sub(" ", hypothesis[:_LOOKED_AT])
    return tuple([word for word in [word.strip(".") for word in plain.casefold().split()] if word])
