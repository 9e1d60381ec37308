"""QA: whether a step's commit may be kept. Deterministic gates first, then a reviewer who is not the author."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.qa._feedback import CiFailure, feedback
    from ratchet.protocols.qa.findings import Finding, Severity
    from ratchet.protocols.qa.judge import QaJudge, qa_judge
    from ratchet.protocols.qa.rejudging import judge_step_commit
    from ratchet.protocols.qa.reporting import MARKDOWN, SKIPPED
    from ratchet.protocols.qa.routing import Route, route
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "MARKDOWN",
    "SKIPPED",
    "CiFailure",
    "Finding",
    "QaJudge",
    "Route",
    "Severity",
    "feedback",
    "judge_step_commit",
    "qa_judge",
    "route",
]
