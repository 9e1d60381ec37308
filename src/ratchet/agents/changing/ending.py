"""The end of an attempt and of a run, each in one transaction with everything that it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ratchet.agents.changing.proposal import Proposed
from ratchet.agents.changing.publishing import VERDICT, NewVersion, Rejected
from ratchet.agents.changing.taking import Decision
from ratchet.agents.changing.work import Work
from ratchet.engines import Failure
from ratchet.judges.record import record_judged
from ratchet.kernel import Outcome, RunStatus, StateChanged, StepStatus, Verdict
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.agents import (
    AgentStatus,
    add_version,
    end_creation,
    get_agent,
    give_up_creation,
    move_current,
)
from ratchet.runtime import complete_run
from ratchet.runtime.attempts import OpenAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What one try came to. `promoted` says that the agent's address leads to the new version now.

    `failure` is how the session failed, if it did.
    """

    outcome: Outcome
    reason: str
    decision: str | None = None
    commit: str | None = None
    version: str | None = None
    summary: str = ""
    promoted: bool = False
    quarantine: str | None = None
    failure: str | None = None

    @property
    def is_permanent(self) -> bool:
        """Whether every try would fail so until a person changes something."""
        return self.failure is not None and Failure(self.failure).is_permanent

    @property
    def is_hopeless(self) -> bool:
        """Whether another try would fail in the same way."""
        return self.failure is not None and Failure(self.failure).is_hopeless


def remembered(result: Mapping[str, Any]) -> Ended:
    return Ended(**{**result, "outcome": Outcome(result["outcome"])})


def end_attempt(
    work: Work,
    opened: OpenAttempt,
    proposed: Proposed | None,
    made: NewVersion | None,
    *,
    outcome: Outcome = Outcome.PASSED,
    reason: str = "",
    kept: str | None = None,
    rejected: Rejected | None = None,
    failure: Failure | None = None,
) -> Ended:
    """Record a try. For a change that passed, this is the moment in which it counts."""
    with opened.job.write() as tx:
        promoted = made is not None and proposed is not None and _promote(tx, work, proposed, made)
        if rejected is not None:
            record_judged(tx, opened.artifacts, rejected.checked.judged, opened.spender)
        if proposed is not None and proposed.decision is Decision.STATE:
            told = {"agent": work.agent.name, "commit": work.parent, "summary": proposed.summary}
            tx.event("agent.state", message=proposed.summary, run_id=work.run.id, data=told)
        ended = Ended(
            outcome=outcome,
            reason=reason or (proposed.summary if proposed else ""),
            decision=None if proposed is None else _decision(work, proposed),
            commit=made.commit if made else None,
            version=made.version if made else None,
            summary=proposed.summary if proposed else "",
            promoted=promoted,
            quarantine=kept,
            failure=None if failure is None else str(failure),
        )
        step = StepStatus.COMPLETED if outcome is Outcome.PASSED else StepStatus.FAILED
        judged = opened.finished.get(VERDICT)
        verdict = None if judged is None else Verdict.of(judged)
        if rejected is not None:
            verdict = rejected.checked.judged.verdict
        opened.end(tx, outcome, ended.reason, asdict(ended), step=step, verdict=verdict)
    return ended


def block_run(work: Work, ended: Ended) -> dict[str, Any]:
    """Leave the run to a person: no session can work until something is changed. Resumed, it tries again."""
    result = asdict(ended)
    with work.job.write() as tx:
        change_run(tx, work.run.id, RunStatus.BLOCKED, reason=ended.reason, result=result)
    return result


def end_run(work: Work, ended: Ended) -> dict[str, Any]:
    """Complete the run, or fail it with the reason of its last try."""
    result = asdict(ended)
    with work.job.write() as tx:
        if ended.outcome is Outcome.PASSED:
            complete_run(tx, work.run.id, result)
            return result
        change_run(tx, work.run.id, RunStatus.FAILED, reason=ended.reason, result=result)
        if work.base is None:
            give_up_creation(tx, work.agent.name, run_id=work.run.id, reason=ended.reason)
    return result


def _promote(tx: Transaction, work: Work, proposed: Proposed, made: NewVersion) -> bool:
    """Record the version, and let the address lead to it unless it is pinned or was moved meanwhile."""
    agent = get_agent(tx, work.agent.name)
    add_version(
        tx,
        agent,
        made.commit,
        made.version,
        parent=work.parent,
        summary=proposed.summary,
        tools=made.tools,
        run_id=work.run.id,
        simulated=proposed.simulated,
    )
    if agent.status is AgentStatus.CREATING:
        end_creation(tx, agent.id, run_id=work.run.id)
    if agent.pinned or agent.current != work.parent:
        return False
    try:
        move_current(
            tx,
            agent,
            made.commit,
            expected=work.parent,
            why="promoted",
            reason=proposed.summary,
            run_id=work.run.id,
        )
    except StateChanged:
        return False
    return True


def _decision(work: Work, proposed: Proposed) -> str:
    return "created" if work.base is None else str(proposed.decision)
