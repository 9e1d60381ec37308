"""A judge that asks a person, and waits for the answer without holding anything up."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field

from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.judge import Candidate, Judged, Report, ruled
from ratchet.judges.waiting import AwaitingApproval
from ratchet.kernel import Outcome
from ratchet.ledger import Transaction
from ratchet.ledger.approvals import Approval, ApprovalStatus, request_approval

# What is kept in the ledger for the person to look at; the whole is in the repository.
_DIFF = 20_000
_OUTCOMES = {
    ApprovalStatus.APPROVED: Outcome.PASSED,
    ApprovalStatus.REFUSED: Outcome.FAILED,
    ApprovalStatus.CLOSED: Outcome.ERROR,
}


@dataclass(frozen=True, kw_only=True)
class PersonJudge:
    """Passes what a person approves.

    Asked the first time, it records a pending approval and raises `AwaitingApproval`; asked again for the same commit
    of the same attempt, it finds that approval. `write` begins a transaction of the ledger, such as `job.write`.
    """

    question: str
    write: Callable[[], AbstractContextManager[Transaction]] = field(repr=False, compare=False)
    name: str = "person"

    @property
    def hash(self) -> str:
        return fingerprint("person 1", question=self.question)

    async def judge(self, candidate: Candidate) -> Judged:
        with self.write() as tx:
            approval = request_approval(
                tx,
                self._once(candidate),
                subject=f"commit {candidate.commit} by {candidate.author}",
                question=self.question,
                data=_shown(candidate),
                run_id=candidate.run_id,
                attempt_id=candidate.attempt_id,
            )
        if approval.status is ApprovalStatus.PENDING:
            raise AwaitingApproval(approval.id)
        report = Report(f"{self.name}.json", json.dumps(asdict(approval)).encode())
        waited = ((approval.decided_at or approval.created_at) - approval.created_at) / 1000
        return ruled(
            self,
            _OUTCOMES[approval.status],
            _told(approval),
            report=report,
            measurements={"waited_seconds": waited},
        )

    def _once(self, candidate: Candidate) -> str:
        """One question for each commit of an attempt, whichever process asks, however often."""
        return f"run {candidate.run_id} attempt {candidate.attempt_id} {candidate.commit} {self.hash}"


def _shown(candidate: Candidate) -> dict[str, object]:
    diff = candidate.diff
    return {
        "commit": candidate.commit,
        "base": candidate.base,
        "author": candidate.author,
        "prompt": candidate.prompt[:_DIFF],
        "diff": diff if len(diff) <= _DIFF else f"{diff[:_DIFF]}\n… ({len(diff) - _DIFF} more characters)",
        "verdicts": [
            {"judge": each.judge, "outcome": each.outcome, "reason": each.reason}
            for each in candidate.finished.values()
        ],
    }


def _told(approval: Approval) -> str:
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    return f"{approval.status}{by}" + (f": {approval.comment}" if approval.comment else "")
