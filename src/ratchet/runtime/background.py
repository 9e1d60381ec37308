"""Background work yields to all other work.

Jobs of the last priority never hold all places of a worker that has more than one, and they start only behind
everything else that is ready. One that runs asks now and then whether others wait, and gives its place back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from ratchet.ledger.tables import jobs, processes, queues
from ratchet.runtime.job import BACKGROUND, JobStatus

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

# A job that can start is taken within milliseconds; one that lies longer has found no place.
WAITS_SECONDS = 0.5

_WAITING = (
    sa.select(sa.literal(1))
    .where(
        jobs.c.queue == sa.bindparam("wanted"),
        jobs.c.status == sa.literal_column("'queued'"),
        jobs.c.priority < BACKGROUND,
        jobs.c.due_at <= sa.bindparam("before"),
    )
    .where(~sa.exists().where(queues.c.name == sa.bindparam("wanted"), queues.c.paused))
    .limit(1)
)
_RUNNING = (
    sa.select(sa.func.count())
    .select_from(jobs)
    .where(
        jobs.c.process_id == sa.bindparam("process"),
        jobs.c.status == sa.literal_column(f"'{JobStatus.STARTED}'"),
        jobs.c.priority >= BACKGROUND,
    )
)
_SLOTS = sa.select(processes.c.slots).where(processes.c.id == sa.bindparam("process"))


def has_room_behind(tx: Transaction, process_id: str) -> bool:
    """Whether one more background job may run on a process. The answer holds until the transaction ends."""
    if not tx.try_lock_key(f"background:{process_id}"):
        # Another thread of the process is starting one this moment.
        return False
    slots = tx.connection.execute(_SLOTS, {"process": process_id}).scalar()
    running = tx.connection.execute(_RUNNING, {"process": process_id}).scalar_one()
    return slots is not None and running < max(1, slots - 1)


def foreground_waits(tx: Transaction, queue: str) -> bool:
    """Whether a job of the queue that comes before the background has found no place for a while."""
    before = tx.now - int(WAITS_SECONDS * 1000)
    return tx.connection.execute(_WAITING, {"wanted": queue, "before": before}).first() is not None
