"""Failures of tools, for the code that an export shares with Ratchet."""

from __future__ import annotations

from ratchet.flowkit.errors import StepFailed


class ExportToolFailed(StepFailed):
    """A call that failed. `final` says that calling again cannot help."""

    def __init__(self, reason: str, *, hint: str | None = None, final: bool = False) -> None:
        super().__init__(reason, hint=hint, final=final)
