"""Judges: what decides. Each is out of the candidate's reach, and what cannot be decided is never a pass."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.judges.command import CommandJudge
    from ratchet.judges.evaluator import Evaluator, EvaluatorTrial
    from ratchet.judges.judge import (
        AllOf,
        Candidate,
        FirstFailure,
        Judge,
        Judged,
        Report,
        all_of,
        first_failure,
        hear,
    )
    from ratchet.judges.reports import JsonReport
    from ratchet.judges.review import VerdictJudge
    from ratchet.judges.scratch import Function, Pinned
else:
    __getattr__ = on_demand(__name__)
