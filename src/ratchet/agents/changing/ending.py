"""The end of a run, in one transaction with everything that it changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ratchet.agents.changing.work import Work
from ratchet.engines import Failure
from ratchet.kernel import Outcome, RunStatus
from ratchet.ledger import change_run
from ratchet.ledger.agents import give_up_creation
from ratchet.loop import Attempted
from ratchet.runtime import complete_run


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

    @classmethod
    def of(cls, attempted: Attempted) -> Ended:
        """What an attempt came to."""
        return cls(
            outcome=attempted.outcome,
            reason=attempted.reason,
            commit=attempted.commit,
            failure=None if attempted.failure is None else str(attempted.failure),
            **attempted.more,
        )

    @property
    def is_permanent(self) -> bool:
        """Whether every try would fail so until a person changes something."""
        return self.failure is not None and Failure(self.failure).is_permanent

    @property
    def is_hopeless(self) -> bool:
        """Whether another try would fail in the same way."""
        return self.failure is not None and Failure(self.failure).is_hopeless


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
