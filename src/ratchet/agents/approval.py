"""A change that a person must approve: when one is asked, what is shown, and how the run waits for the answer.

The question is an approval of the ledger, so that it waits as durably as those of every other flow: the run is blocked,
no process holds anything, and the answer resumes the run where it was.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ratchet.agents.jobs import RUN_KIND
from ratchet.kernel import Conflict, RunStatus, Waiting
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.agents import AgentRow, get_agent, set_approval
from ratchet.ledger.questions import (
    Approval,
    ApprovalStatus,
    pending_approvals,
    request_approval,
    still_pending,
)
from ratchet.ledger.usage import total
from ratchet.runtime.runs import answer_approval

if TYPE_CHECKING:
    from ratchet.agents.staging_area import ArchitectWork
    from ratchet.config import Settings
    from ratchet.loop import OpenAttempt
    from ratchet.runtime import Runtime

NEVER, BREAKING, ALWAYS = "never", "breaking", "always"
MOST_DIFF = 200_000
_MOST_PROMPT = 20_000
_MOST_QUESTION = 1_000


class ApprovalPending(Waiting):
    """A person has not decided yet."""

    def __init__(self, approval: Approval) -> None:
        super().__init__(
            f"waits for approval {approval.id}: {approval.question}",
            hint=f"look at it with `ratchet approval show {approval.id}`, then approve or refuse it",
        )
        self.approval_id = approval.id


def mode_of(agent: AgentRow, settings: Settings) -> str:
    """When a person is asked about a change of this agent."""
    return agent.approval or settings.agents.approval


def ask_for_approval(
    work: ArchitectWork, opened: OpenAttempt, findings: Sequence[str], *, summary: str, diff: str
) -> Approval:
    """The approval of the change of this attempt, decided. Raises `ApprovalPending` while it is not."""
    why = "; ".join(findings) or "every change of this agent is approved by a person"
    verdict = opened.finished.get("judged", {}).get("verdict")
    data = {
        "agent": work.agent.name,
        "from_version": None if work.base is None else work.base.version,
        "summary": summary,
        "findings": list(findings),
        "verdicts": []
        if verdict is None
        else [{key: verdict[key] for key in ("judge", "outcome", "reason")}],
        "report": None if verdict is None else verdict["report"],
        "prompt": work.message[:_MOST_PROMPT],
        "diff": diff[:MOST_DIFF],
    }
    with work.job.write() as tx:
        data["cost"] = asdict(total(tx, "attempt", opened.id))
        approval = request_approval(
            tx,
            f"agents.change/{opened.id}",
            subject=f"change of agent {work.agent.name}",
            question=why[:_MOST_QUESTION],
            data=data,
            run_id=work.run.id,
            attempt_id=opened.id,
        )
    if approval.status is ApprovalStatus.PENDING:
        raise ApprovalPending(approval)
    return approval


def block_until_decided(work: ArchitectWork, pending: ApprovalPending) -> bool:
    """Block the run until a person decides; false if one has decided just now."""
    with work.job.write() as tx:
        if not still_pending(tx, pending.approval_id):
            return False
        change_run(tx, work.run.id, RunStatus.BLOCKED, reason=str(pending))
    return True


def refusal_of(approval: Approval) -> str | None:
    """Why the change may not be kept; None if it may."""
    if approval.status is ApprovalStatus.APPROVED:
        return None
    said = f": {approval.comment}" if approval.comment else ""
    return f"{approval.status} by {approval.decided_by or 'its run'}{said}"


def state_diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The difference of two states, for a person."""
    old, new = (
        json.dumps(each, indent=2, sort_keys=True, ensure_ascii=False).split("\n") for each in (before, after)
    )
    return "\n".join(difflib.unified_diff(old, new, "state.json", "state.json", lineterm=""))


def pending_changes(tx: Transaction, name: str) -> list[Approval]:
    """The changes of an agent that wait for a person, oldest first."""
    return pending_approvals(tx, kind=RUN_KIND, name=get_agent(tx, name).name)


def decide_change(
    tx: Transaction,
    runtime: Runtime,
    name: str,
    *,
    approved: bool,
    by: str,
    run_id: int | None = None,
    comment: str | None = None,
) -> Approval:
    """Approve or refuse the change of an agent that waits, that of `run_id` if several do. Raises `Conflict`."""
    found = [each for each in pending_changes(tx, name) if run_id in (None, each.run_id)]
    if not found:
        raise Conflict(
            f"no change of {name} waits for an approval",
            hint=f"`ratchet agent show {name}` shows its last runs",
        )
    if len(found) > 1:
        listed = ", ".join(str(each.run_id) for each in found)
        raise Conflict(
            f"changes of {name} by the runs {listed} wait for an approval", hint="name one with --run"
        )
    return answer_approval(tx, runtime, found[0].id, approved=approved, by=by, comment=comment)


def choose_mode(tx: Transaction, name: str, mode: str | None) -> AgentRow:
    """Say when a person is asked about changes of this agent; as the settings say with None."""
    set_approval(tx, get_agent(tx, name), mode)
    return get_agent(tx, name)
