"""QA: whether a step's commit may be kept. Deterministic gates first, then a reviewer who is not the author."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.qa.gates import FindingSeverity, QaFinding
    from ratchet.protocols.qa.judge import MARKDOWN, SKIPPED, QaJudge, judge_step_commit, qa_judge
else:
    __getattr__ = on_demand(__name__)
