"""A question that came to nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.kernel import RatchetError


class NoAnswer(RatchetError):
    """There is no answer that can be used. `step` is where it failed, `problems` what was wrong at last.

    `teaches` says that the answer itself was bad, and not, say, the key of the model. It `is_permanent` when every
    further session would fail so, until a person changes something.
    """

    http_status = 502

    def __init__(
        self, step: str, problems: Sequence[str], sessions: int, *, teaches: bool, is_permanent: bool = False
    ) -> None:
        told = "; ".join(problems)
        tries = f"after {sessions} sessions" if sessions > 1 else "in its only session"
        super().__init__(f"{step} failed {tries}: {told}")
        self.step = step
        self.problems = tuple(problems)
        self.teaches = teaches
        self.is_permanent = is_permanent
