"""The lease of a started job: who works on it, and whose word about it counts.

A started job is leased to one process, for as long as that process shows that it lives (`ratchet.runtime.heartbeat`).
The job's `delivery` is the fencing number: it rises each time the job is handed to another, and whoever writes under an
old number, frozen until its work was somebody else's, is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.kernel import Superseded
from ratchet.ledger.tables import jobs
from ratchet.runtime.job import JobStatus

if TYPE_CHECKING:
    from ratchet.ledger import Transaction
    from ratchet.runtime.job import Job

# Built once: they run for every job, and building a statement takes longer than running it.
_LEASED = (
    sa.select(jobs.c.id)
    .where(
        jobs.c.id == sa.bindparam("job_id"),
        jobs.c.delivery == sa.bindparam("delivery"),
        jobs.c.status == str(JobStatus.STARTED),
    )
    .with_for_update()
)
_CHANGE = sa.update(jobs).where(
    jobs.c.id == sa.bindparam("which"),
    jobs.c.delivery == sa.bindparam("held"),
    jobs.c.status == sa.literal(str(JobStatus.STARTED)),
)


def check_lease(tx: Transaction, job: Job) -> None:
    """Raise `Superseded` unless this delivery of a started job is still the one that counts."""
    if tx.connection.execute(_LEASED, {"job_id": job.id, "delivery": job.delivery}).first() is None:
        raise _superseded(job)


def end_lease(tx: Transaction, job: Job, values: dict[str, Any]) -> None:
    """Change a started job to what becomes of it. Raises `Superseded` when it is somebody else's by now."""
    changed = tx.connection.execute(_CHANGE, {"which": job.id, "held": job.delivery, **values})
    if changed.rowcount != 1:
        raise _superseded(job)


def _superseded(job: Job) -> Superseded:
    return Superseded(f"job {job.id} was taken over by another worker or has ended")
