"""Every operation that is declared, noun by noun."""

from __future__ import annotations

from typing import Any

from ratchet.operations import Operation
from ratchet.protocols.operations import PROTOCOL_OPERATIONS, STEP_OPERATIONS
from ratchet.research.operations import OPERATIONS as RESEARCH_OPERATIONS
from ratchet.runtime.operations import approvals, jobs, runs, schedules

EVERY: tuple[Operation[..., Any], ...] = (
    *runs.OPERATIONS,
    *approvals.OPERATIONS,
    *jobs.QUEUE_OPERATIONS,
    *jobs.JOB_OPERATIONS,
    *schedules.OPERATIONS,
    *PROTOCOL_OPERATIONS,
    *STEP_OPERATIONS,
    *RESEARCH_OPERATIONS,
)
