"""What an engine is told of tries that did not pass."""

from __future__ import annotations

from ratchet.agents.changing.work import Work
from ratchet.agents.jobs import RUN_KIND
from ratchet.kernel import Outcome, RunStatus
from ratchet.ledger import Run
from ratchet.ledger.runs import list_runs, list_steps
from ratchet.ledger.stages import stages_of_step
from ratchet.runtime.attempts import ENDED

_MOST = 5
_LONGEST = 2000


def earlier_reasons(work: Work) -> tuple[str, ...]:
    """Why the last tries failed, oldest first: those of this run, and of the runs since the last that succeeded."""
    found: list[str] = []
    with work.job.ledger.read() as tx:
        for step in list_steps(tx, work.run.id):
            tries = stages_of_step(tx, step.id, ENDED)
            found += (each["reason"] for each in reversed(tries) if each["outcome"] != Outcome.PASSED)
        for run in list_runs(tx, kind=RUN_KIND, name=work.agent.name, before=work.run.id, limit=_MOST):
            if run.status is RunStatus.COMPLETED or not _is_akin(work, run):
                break
            if run.status is RunStatus.FAILED and run.reason:
                found.append(run.reason)
    return tuple(reason[:_LONGEST] for reason in reversed(found[:_MOST]))


def _is_akin(work: Work, run: Run) -> bool:
    """Another agent may have had the name. Of those, only what failed to become one teaches how to make this one."""
    if work.base is None:
        return bool(run.spec["action"] == "create")
    return bool(run.spec.get("agent_id") == work.agent.id)
