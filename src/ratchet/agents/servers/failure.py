"""What can go wrong with the servers of an agent."""

from __future__ import annotations

from ratchet.kernel import RatchetError


class StartFailed(RatchetError):
    """A server did not come to answer. `log` is the end of what it printed."""

    http_status = 502

    def __init__(self, message: str, *, hint: str | None = None, log: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log


class NoAnswer(RatchetError):
    """A server could not be reached, did not answer in time, or did not answer as MCP wants it."""

    http_status = 502
