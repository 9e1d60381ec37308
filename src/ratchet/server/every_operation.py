"""Every operation that is declared, noun by noun."""

from __future__ import annotations

from typing import Any

from ratchet.agents.access import OPERATIONS as ACCESS_OPERATIONS
from ratchet.agents.judge_operations import OPERATIONS as JUDGE_OPERATIONS
from ratchet.agents.operations import OPERATIONS as AGENT_OPERATIONS
from ratchet.agents.production_operations import OPERATIONS as PRODUCTION_OPERATIONS
from ratchet.operations import Operation
from ratchet.projects.operations import OPERATIONS as PROJECT_OPERATIONS
from ratchet.protocols.operations import PROTOCOL_OPERATIONS
from ratchet.protocols.step_operations import (
    ABOUT_PROTOCOLS,
    ATTEMPT_OPERATIONS,
    SPEC_OPERATIONS,
    STEP_OPERATIONS,
)
from ratchet.research.operations import OPERATIONS as RESEARCH_OPERATIONS
from ratchet.runtime.operations import approvals, jobs, runs, schedules
from ratchet.tools.operations import OPERATIONS as TOOL_OPERATIONS
from ratchet.workflows import tool_operations
from ratchet.workflows.operations import OPERATIONS as WORKFLOW_OPERATIONS
from ratchet.workflows.schedules import OPERATIONS as SCHEDULE_OPERATIONS
from ratchet.workflows.triggers import OPERATIONS as TRIGGER_OPERATIONS

EVERY: tuple[Operation[..., Any], ...] = (
    *runs.OPERATIONS,
    *runs.EVENT_OPERATIONS,
    *approvals.OPERATIONS,
    *jobs.QUEUE_OPERATIONS,
    *jobs.JOB_OPERATIONS,
    *jobs.PROCESS_OPERATIONS,
    *SCHEDULE_OPERATIONS,
    *schedules.OPERATIONS,
    *PROJECT_OPERATIONS,
    *PROTOCOL_OPERATIONS,
    *ABOUT_PROTOCOLS,
    *STEP_OPERATIONS,
    *ATTEMPT_OPERATIONS,
    *SPEC_OPERATIONS,
    *RESEARCH_OPERATIONS,
    *AGENT_OPERATIONS,
    *JUDGE_OPERATIONS,
    *PRODUCTION_OPERATIONS,
    *ACCESS_OPERATIONS,
    *WORKFLOW_OPERATIONS,
    *TOOL_OPERATIONS,
    *tool_operations.OPERATIONS,
    *TRIGGER_OPERATIONS,
)
