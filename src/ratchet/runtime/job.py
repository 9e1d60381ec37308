"""A job: one piece of work that some worker is to do, once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratchet.kernel import JobId


DEFAULT_QUEUE = "default"
# 0 is the most urgent, 9 the least.
DEFAULT_PRIORITY = 5
# Jobs of the last priority are background work: they start only where nothing else waits.
BACKGROUND = 9


class JobStatus(StrEnum):
    """Where a job is. `scheduled` waits for its time, `waiting` for its key, `queued` for a worker."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    WAITING = "waiting"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED})
# What may be stopped without asking a worker.
IDLE = (JobStatus.QUEUED, JobStatus.SCHEDULED, JobStatus.WAITING)


_LINE = "line:"


def run_key(run_id: int, line: str | None = None) -> str:
    """The key of the job that carries a run: at most one process works on it, or on any run of the same line."""
    return f"run:{run_id}" if line is None else f"{_LINE}{line}"


@dataclass(frozen=True, slots=True)
class Job:
    id: JobId
    kind: str
    queue: str
    key: str | None
    priority: int
    payload: Any
    run_id: int | None
    request_id: str | None
    once: str | None
    status: JobStatus
    stop: str | None
    attempt: int
    max_attempts: int
    timeout_ms: int | None
    delivery: int
    recoveries: int
    process_id: str | None
    created_at: int
    due_at: int
    started_at: int | None
    ended_at: int | None
    result: Any
    error: str | None

    @property
    def background(self) -> bool:
        return self.priority >= BACKGROUND

    @property
    def waits_until_at(self) -> int | None:
        """When it is due; nothing once it has ended."""
        return None if self.status.final else self.due_at

    @property
    def carries_run(self) -> bool:
        if self.run_id is None or self.key is None:
            return False
        return self.key == run_key(self.run_id) or self.key.startswith(_LINE)


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
