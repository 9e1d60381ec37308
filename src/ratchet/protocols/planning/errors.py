"""How planning ends when there is no plan. There is never another plan instead."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.kernel import Conflict, RatchetError
from ratchet.ledger.clarifications import Clarification


class PlanFailed(RatchetError):
    """There is no plan. The message says why, and `problems` has one sentence for each thing that was wrong at last."""

    http_status = 502

    def __init__(self, message: str, *, hint: str | None = None, problems: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


class PlanBlocked(Conflict):
    """Nothing is planned before somebody answers the `blockers`."""

    def __init__(self, blockers: Sequence[Clarification]) -> None:
        keys = tuple(each.key for each in blockers)
        super().__init__(
            f"planning waits for answers to: {', '.join(keys)}",
            hint="answer them; the protocol then goes on by itself",
        )
        self.blockers = tuple(blockers)
        self.keys = keys
