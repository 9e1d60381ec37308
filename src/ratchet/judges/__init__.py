"""Judges: what decides. Each is out of the candidate's reach, and what cannot be decided is never a pass."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.judges.combined import AllOf, FirstFailure, all_of, first_failure
    from ratchet.judges.command import CommandJudge
    from ratchet.judges.evaluator import Evaluator, EvaluatorTrial
    from ratchet.judges.judge import Candidate, Judge, Judged, Report, hear
    from ratchet.judges.process import Function
    from ratchet.judges.reports import JsonReport
    from ratchet.judges.review import VerdictJudge
    from ratchet.judges.scratch import Pinned
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "AllOf",
    "Candidate",
    "CommandJudge",
    "Evaluator",
    "EvaluatorTrial",
    "FirstFailure",
    "Function",
    "JsonReport",
    "Judge",
    "Judged",
    "Pinned",
    "Report",
    "VerdictJudge",
    "all_of",
    "first_failure",
    "hear",
]
