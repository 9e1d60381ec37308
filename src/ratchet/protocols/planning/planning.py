"""Planning a protocol: a description becomes a branch with a plan on it and steps in the ledger, or a reason why not.

Every session ends with a checkpoint in the ledger, so a process that is started again goes on behind it. The commit of
the plan follows from what is recorded, and nothing counts before the very end, which is one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator

from ratchet.asking import NoAnswer
from ratchet.engines.registry import Surroundings
from ratchet.kernel import IllegalTransition, LedgerError, RatchetError, RunStatus, StateChanged, Superseded
from ratchet.ledger import change_run
from ratchet.ledger.projects import Project
from ratchet.ledger.protocol_steps import list_protocol_steps
from ratchet.ledger.protocols import Protocol
from ratchet.projects.clarifying import open_blockers
from ratchet.projects.clone import Clone, stoppable
from ratchet.protocols.choosing import choose_planner
from ratchet.protocols.naming import require_number
from ratchet.protocols.planning.branching import Begun, begin, move_branch
from ratchet.protocols.planning.committing import commit_plan
from ratchet.protocols.planning.decomposing import Decomposed, decompose_plan
from ratchet.protocols.planning.ending import end_planned
from ratchet.protocols.planning.errors import PlanBlocked, PlanFailed
from ratchet.protocols.planning.proposing import Proposed, propose_plan
from ratchet.protocols.planning.sight import Sight, look
from ratchet.protocols.planning.work import OpenEngine, Passed, Work
from ratchet.protocols.qa.reviewer import require_reviewer
from ratchet.runtime import JobContext

_AGAIN = "then start the protocol again"


async def plan_protocol(
    job: JobContext,
    protocol: Protocol,
    project: Project,
    clone: Clone,
    open_engine: OpenEngine,
    *,
    passed: Passed = lambda _: None,
) -> None:
    """Plan a protocol whose run is `planning`; it is `planned` then. One that has steps already keeps them.

    Raises `PlanFailed` when there is no plan, `PlanBlocked` when a question has to be answered first, and
    `StateChanged` when the run was stopped meanwhile.
    """
    work = Work(job, protocol, project, clone, open_engine, passed)
    if await asyncio.to_thread(_has_steps, work):
        await asyncio.to_thread(_keep_plan, work)
        return
    await asyncio.to_thread(_require_answers, work)
    with _explained(work):
        require_number(protocol.name)
        engine = open_engine(choose_planner(job.runtime.settings, protocol))
        await asyncio.to_thread(_require_reviewer, work)
        begun = await stoppable(clone.transfer, lambda: begin(work))
        sight = await asyncio.to_thread(_look, work, begun)
        proposed = await propose_plan(work, engine, begun, sight)
        decomposed = Decomposed(proposed.plan)
        if work.settings.decompose:
            decomposed = await decompose_plan(work, engine, begun, sight, proposed.plan)
        commit = await asyncio.to_thread(_commit, work, begun, proposed, decomposed)
    passed("committed")
    await asyncio.to_thread(end_planned, work, begun, sight, proposed, decomposed, commit)


def _has_steps(work: Work) -> bool:
    with work.job.ledger.read() as tx:
        return bool(list_protocol_steps(tx, work.protocol.run_id))


def _keep_plan(work: Work) -> None:
    """A plan is a contract: asked for again, it is the one that there is."""
    with work.job.write() as tx:
        change_run(
            tx,
            work.protocol.run_id,
            RunStatus.PLANNED,
            expected=(RunStatus.PLANNING,),
            reason="it has a plan already",
        )


def _require_answers(work: Work) -> None:
    with work.job.ledger.read() as tx:
        blockers = open_blockers(tx, work.project.id, "planning", run_id=work.protocol.run_id)
    if blockers:
        raise PlanBlocked(blockers)


def _require_reviewer(work: Work) -> None:
    """Before the plan is paid for: without a reviewer no step of it could be kept."""
    runtime = work.job.runtime
    around = Surroundings(runtime.settings, runtime.home, os.environ)
    require_reviewer(around, work.project, work.protocol, lambda name, _: work.open_engine(name))


def _look(work: Work, begun: Begun) -> Sight:
    with work.job.ledger.read() as tx:
        return look(tx, work.protocol, work.project, work.repository, begun.ground)


def _commit(work: Work, begun: Begun, proposed: Proposed, decomposed: Decomposed) -> str:
    commit = commit_plan(work, begun, decomposed.plan, author=proposed.author, at=proposed.at)
    move_branch(work, begun, commit)
    return commit


@contextlib.contextmanager
def _explained(work: Work) -> Iterator[None]:
    """Whatever a person has to mend becomes `PlanFailed`; what belongs to the job goes through."""
    try:
        yield
    except NoAnswer as none:
        said = f"{work.protocol.name} has no plan: {none}"
        hint = f"describe the change in other words, or set protocols.planner to another engine; {_AGAIN}"
        raise PlanFailed(
            said, hint=hint if none.teaches else f"mend that; {_AGAIN}", problems=none.problems
        ) from none
    except (PlanFailed, PlanBlocked, LedgerError, Superseded, IllegalTransition):
        raise
    except StateChanged:
        # Of a run or a step: somebody stopped it.
        raise
    except RatchetError as error:
        raise PlanFailed(f"{work.protocol.name} cannot be planned: {error}", hint=error.hint) from error
