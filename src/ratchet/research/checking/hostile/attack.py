"""One thing that a hostile recipe may try."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ratchet.kernel import TrialStatus

REFUSED = frozenset(
    {
        TrialStatus.CRASH,
        TrialStatus.DISQUALIFIED,
        TrialStatus.SIZE_BLOCKED,
        TrialStatus.TRAIN_BUDGET_OVERRUN,
        TrialStatus.EVAL_BUDGET_OVERRUN,
    }
)
"""How a trial may end that gave the evaluator something strange, or nothing."""
OVERRUN = frozenset({TrialStatus.TRAIN_BUDGET_OVERRUN})
CRASH = frozenset({TrialStatus.CRASH})


class Where(StrEnum):
    """Which recipes an attack is for: those called as a function, those run as a command, or both."""

    NODE = "node"
    COMMAND = "command"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """`code` runs when the recipe does, before anything of it. `forge` defines `forged(value)`, which turns an honest
    answer into the text of another. `ends` are the statuses that the trial may end with; `scores` says that it may also
    come to a score, as long as that is not better than the honest one.
    """

    name: str
    code: str = ""
    forge: str = ""
    where: Where = Where.BOTH
    ends: frozenset[TrialStatus] = REFUSED
    scores: bool = True

    @property
    def expected(self) -> str:
        statuses = " or ".join(sorted(self.ends))
        return f"{statuses}, or no better score" if self.scores else statuses
