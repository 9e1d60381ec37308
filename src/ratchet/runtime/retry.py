"""How often a job is tried, and how long it waits in between."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Three tries by default; the pause doubles up to a cap. A worker's death is no fault of the job: it is counted
    apart, and bounded so that a job that kills its workers ends."""

    max_attempts: int = 3
    base_seconds: float = 1.0
    cap_seconds: float = 60.0
    max_recoveries: int = 20

    def pause_seconds(self, attempt: int) -> float:
        """The wait after the try numbered `attempt` (from 1) has failed."""
        return min(self.cap_seconds, self.base_seconds * float(2 ** min(attempt - 1, 30)))
