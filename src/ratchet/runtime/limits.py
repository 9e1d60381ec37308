"""The limits of a queue over the whole fleet: how many of its jobs run at once, and how many start in a while.

Both are counted in the ledger at the moment a job is claimed, under a lock of the queue, so that no two workers are
given the last place. What runs is counted in the jobs themselves; starts have rows of their own, which are dropped
once the limit no longer looks back so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ratchet.ledger.tables import job_starts, jobs
from ratchet.runtime.job import JobStatus

if TYPE_CHECKING:
    from ratchet.ledger import Transaction
    from ratchet.runtime.job import Job


@dataclass(frozen=True, slots=True)
class QueueRule:
    """The limits of a queue over the whole fleet; `None` is no limit."""

    name: str
    concurrency: int | None = None
    rate_limit: int | None = None
    rate_seconds: float | None = None

    @property
    def limited(self) -> bool:
        return self.concurrency is not None or self.rate_limit is not None

    @property
    def window_ms(self) -> int:
        """How far back the rate limit looks."""
        return int((self.rate_seconds or 0) * 1000)


def room(tx: Transaction, rule: QueueRule) -> int:
    """How many more jobs of a limited queue may start now. The answer holds until the transaction ends."""
    tx.lock_keys(f"queue:{rule.name}")
    free = []
    if rule.concurrency is not None:
        running = sa.select(sa.func.count()).where(
            jobs.c.queue == rule.name, jobs.c.status == str(JobStatus.STARTED)
        )
        free.append(rule.concurrency - tx.connection.execute(running).scalar_one())
    if rule.rate_limit is not None:
        _forget_old_starts(tx, rule)
        lately = sa.select(sa.func.count()).where(job_starts.c.queue == rule.name)
        free.append(rule.rate_limit - tx.connection.execute(lately).scalar_one())
    return max(0, min(free))


def count_start(tx: Transaction, rule: QueueRule, job: Job) -> None:
    """Have a start count against the rate limit of its queue."""
    if rule.rate_limit is not None:
        start = {"job_id": job.id, "delivery": job.delivery, "queue": job.queue, "at": tx.now}
        tx.connection.execute(sa.insert(job_starts), start)


def reopens_at(tx: Transaction, rule: QueueRule) -> int | None:
    """When the oldest start stops to count against the rate limit of a queue."""
    oldest = sa.select(sa.func.min(job_starts.c.at)).where(
        job_starts.c.queue == rule.name, job_starts.c.at > tx.now - rule.window_ms
    )
    at: int | None = tx.connection.execute(oldest).scalar()
    return None if at is None else at + rule.window_ms


def _forget_old_starts(tx: Transaction, rule: QueueRule) -> None:
    # One that lies far ahead was written by a clock that was wrong.
    outside = sa.or_(job_starts.c.at <= tx.now - rule.window_ms, job_starts.c.at > tx.now + rule.window_ms)
    tx.connection.execute(sa.delete(job_starts).where(job_starts.c.queue == rule.name, outside))
