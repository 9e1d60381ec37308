"""Whether a tool has become worse, or was never good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ratchet.config.workflow_settings import Evolution

# As many calls at the end of the history speak for how it is now.
RECENT = 3
# So many calls are looked at, however many there were.
HISTORY = 100


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to ask for a better version, and why or why not."""

    yes: bool
    why: str


def weigh(scores: Sequence[float], settings: Evolution) -> Decision:
    """What the scores of a version say, oldest first."""
    # One more than asked for, so that there is something to compare the latest with.
    needed = max(settings.min_runs, RECENT)
    if len(scores) <= needed:
        return Decision(False, f"{len(scores)} calls are on record; more than {needed} are needed")
    # Rounded: what differs only in the last digit of a sum is equal.
    recent, older = round(fmean(scores[-RECENT:]), 9), round(fmean(scores[:-RECENT]), 9)
    change = round(recent - older, 9)
    if change < -settings.drop:
        return Decision(True, f"the score fell from {older:.2f} to {recent:.2f} over the last {RECENT} calls")
    if recent < settings.low:
        return Decision(True, f"the score of the last {RECENT} calls is {recent:.2f}, below {settings.low:g}")
    return Decision(False, f"the score of the last {RECENT} calls is {recent:.2f}, as good as before")
