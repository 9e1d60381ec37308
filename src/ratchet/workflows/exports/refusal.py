"""What cannot be exported, with the reason for each step."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.kernel import Misuse
from ratchet.workflows.exports.target import Target


class NotExportable(Misuse):
    """`reasons` has one sentence for each step that stands in the way."""

    def __init__(self, target: Target, reasons: Sequence[str]) -> None:
        super().__init__(
            f"this workflow cannot be exported for {target}: {'; '.join(reasons)}",
            hint="change these steps, choose another target, or name what is missing",
        )
        self.target = target
        self.reasons = tuple(reasons)
