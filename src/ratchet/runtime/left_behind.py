"""Processes that are dead and the jobs that still lie on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ratchet.ledger.tables import jobs
from ratchet.runtime.job import JobStatus
from ratchet.runtime.processes import Process, list_processes

if TYPE_CHECKING:
    from ratchet.ledger import Transaction


@dataclass(frozen=True, slots=True)
class LeftBehind:
    process: Process
    jobs: int


def is_silent(process: Process, now_ms: int, dead_after_seconds: float) -> bool:
    """Whether a process was given up, or has not been heard of for so long that it will be.

    By the wall clock, which is good enough to tell a person; what becomes of its jobs is decided by `Watch`.
    """
    return process.state == "dead" or process.beat_at < now_ms - dead_after_seconds * 1000


def left_behind(tx: Transaction, dead_after_seconds: float) -> list[LeftBehind]:
    """The silent processes that jobs are still said to run on."""
    silent = [each for each in list_processes(tx) if is_silent(each, tx.now, dead_after_seconds)]
    if not silent:
        return []
    query = (
        sa.select(jobs.c.process_id, sa.func.count())
        .where(jobs.c.status == str(JobStatus.STARTED), jobs.c.process_id.in_([each.id for each in silent]))
        .group_by(jobs.c.process_id)
    )
    held = {row[0]: row[1] for row in tx.connection.execute(query)}
    return [LeftBehind(each, held[each.id]) for each in silent if each.id in held]
