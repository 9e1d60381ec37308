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
    Waiting,
)
from ratchet.kernel.ids import AttemptId, EventId, JobId, ProjectId, RunId, StepId, is_name, new_id
from ratchet.kernel.status import (
    REOPENED,
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    RunStatus,
    StepStatus,
    check_transition,
)
from ratchet.kernel.times import iso
from ratchet.kernel.trials import Direction, TrialStatus, exp_id
from ratchet.kernel.usage import BudgetPolicy, Limits, Usage
from ratchet.kernel.verdict import Outcome, Verdict

__all__ = [
    "REOPENED",
    "RUN_TRANSITIONS",
    "STEP_TRANSITIONS",
    "AttemptId",
    "BudgetExceeded",
    "BudgetPolicy",
    "ConfigError",
    "Conflict",
    "Direction",
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
    "TrialStatus",
    "Usage",
    "Verdict",
    "Waiting",
    "check_transition",
    "exp_id",
    "is_name",
    "iso",
    "new_id",
]
