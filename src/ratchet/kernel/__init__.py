"""Pure types of the glossary. No I/O and no framework."""

from ratchet.kernel.errors import (
    BudgetExceeded,
    ConfigError,
    Conflict,
    IllegalTransition,
    LedgerCorrupt,
    LedgerError,
    LedgerTooNew,
    LedgerUnavailable,
    Missing,
    Misuse,
    NotFound,
    RatchetError,
    StateChanged,
    Superseded,
)
from ratchet.kernel.ids import AttemptId, EventId, JobId, ProjectId, RunId, StepId, is_name, new_id
from ratchet.kernel.status import (
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    RunStatus,
    StepStatus,
    check_transition,
)
from ratchet.kernel.usage import BudgetPolicy, Limits, Usage
from ratchet.kernel.verdict import Outcome, Verdict

__all__ = [
    "RUN_TRANSITIONS",
    "STEP_TRANSITIONS",
    "AttemptId",
    "BudgetExceeded",
    "BudgetPolicy",
    "ConfigError",
    "Conflict",
    "EventId",
    "IllegalTransition",
    "JobId",
    "LedgerCorrupt",
    "LedgerError",
    "LedgerTooNew",
    "LedgerUnavailable",
    "Limits",
    "Missing",
    "Misuse",
    "NotFound",
    "Outcome",
    "ProjectId",
    "RatchetError",
    "RunId",
    "RunStatus",
    "StateChanged",
    "StepId",
    "StepStatus",
    "Superseded",
    "Usage",
    "Verdict",
    "check_transition",
    "is_name",
    "new_id",
]
