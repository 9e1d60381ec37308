"""A person's answer, and the run that goes on because of it."""

from __future__ import annotations

from ratchet.kernel import RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.questions import Approval, decide_approval
from ratchet.ledger.runs import get_run
from ratchet.runtime.job_rows import list_jobs
from ratchet.runtime.runs import resume_run
from ratchet.runtime.runtime import Runtime


def decide(
    tx: Transaction,
    runtime: Runtime,
    approval_id: int,
    *,
    approved: bool,
    by: str,
    comment: str | None = None,
) -> Approval:
    """Answer an approval and let its run go on, if it was blocked, in one transaction.

    A paused run stays paused: it finds the answer when somebody resumes it. Raises `NotFound` and `Conflict`.
    """
    approval = decide_approval(tx, approval_id, approved=approved, by=by, comment=comment)
    if approval.run_id is not None:
        blocked = get_run(tx, approval.run_id).status is RunStatus.BLOCKED
        if blocked and list_jobs(tx, run_id=approval.run_id, limit=1):
            resume_run(tx, runtime, approval.run_id)
    return approval
