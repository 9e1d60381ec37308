"""Planning a protocol: a description becomes a branch with a plan on it and steps in the ledger, or a reason why not.

Every session ends with a checkpoint in the ledger, so a process that is started again resumes behind it. The commit of
the plan follows from what is recorded, and nothing counts before the very end, which is one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict

from ratchet.engines.registry import EngineContext
from ratchet.kernel import IllegalTransition, LedgerError, RatchetError, RunStatus, StateChanged, Superseded
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol, add_protocol_steps, list_protocol_steps
from ratchet.ledger.questions import list_blockers
from ratchet.ledger.usage import total
from ratchet.projects.clarifications import ask
from ratchet.projects.clone import Clone, stoppable
from ratchet.protocols.engine_choice import choose_planner, require_reviewer
from ratchet.protocols.names import require_number
from ratchet.protocols.planning.branch import (
    Begun,
    OpenEngine,
    Passed,
    PlanBlocked,
    PlanFailed,
    PlanningWork,
    begin,
    move_branch,
)
from ratchet.protocols.planning.plan import ProtocolPlan, spec_of
from ratchet.protocols.planning.proposal import (
    Decomposed,
    ProposedPlan,
    RepositoryView,
    decompose_plan,
    decomposer_rules,
    look,
    planner_rules,
    propose_plan,
)
from ratchet.protocols.spec import prompt_version, record_spec, spec_hash, step_rows
from ratchet.question import NoAnswer
from ratchet.runtime import JobContext
from ratchet.workspaces import Identity
from ratchet.workspaces.packs import record_commit

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
    work = PlanningWork(job, protocol, project, clone, open_engine, passed)
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


def _has_steps(work: PlanningWork) -> bool:
    with work.job.ledger.read() as tx:
        return bool(list_protocol_steps(tx, work.protocol.run_id))


def _keep_plan(work: PlanningWork) -> None:
    """A plan is a contract: asked for again, it is the one that there is."""
    with work.job.write() as tx:
        change_run(
            tx,
            work.protocol.run_id,
            RunStatus.PLANNED,
            expected=(RunStatus.PLANNING,),
            reason="it has a plan already",
        )


def _require_answers(work: PlanningWork) -> None:
    with work.job.ledger.read() as tx:
        blockers = list_blockers(tx, work.project.id, "planning", run_id=work.protocol.run_id)
    if blockers:
        raise PlanBlocked(blockers)


def _require_reviewer(work: PlanningWork) -> None:
    """Before the plan is paid for: without a reviewer no step of it could be kept."""
    runtime = work.job.runtime
    around = EngineContext(runtime.settings, runtime.home, os.environ)
    require_reviewer(around, work.project, work.protocol, lambda name, _: work.open_engine(name))


def _look(work: PlanningWork, begun: Begun) -> RepositoryView:
    with work.job.ledger.read() as tx:
        return look(tx, work.protocol, work.project, work.repository, begun.ground)


def _commit(work: PlanningWork, begun: Begun, proposed: ProposedPlan, decomposed: Decomposed) -> str:
    commit = commit_plan(work, begun, decomposed.plan, author=proposed.author, at=proposed.at)
    move_branch(work, begun, commit)
    return commit


@contextlib.contextmanager
def _explained(work: PlanningWork) -> Iterator[None]:
    """Whatever a person has to fix becomes `PlanFailed`; what belongs to the job goes through."""
    try:
        yield
    except NoAnswer as none:
        said = f"{work.protocol.name} has no plan: {none}"
        hint = f"describe the change in other words, or set protocols.planner to another engine; {_AGAIN}"
        raise PlanFailed(
            said, hint=hint if none.teaches else f"fix that; {_AGAIN}", problems=none.problems
        ) from none
    except (PlanFailed, PlanBlocked, LedgerError, Superseded, IllegalTransition):
        raise
    except StateChanged:
        # Of a run or a step: it was stopped.
        raise
    except RatchetError as error:
        raise PlanFailed(f"{work.protocol.name} cannot be planned: {error}", hint=error.hint) from error


def commit_plan(
    work: PlanningWork, begun: Begun, plan: ProtocolPlan, *, author: Identity | None, at: int
) -> str:
    """Commit the files of the plan, and nothing else, on top of where it began. Moves no ref."""
    name = work.protocol.name
    number = require_number(name)
    return work.repository.commit_files(
        {f"{work.folder}/{file}": text.encode() for file, text in plan.files().items()},
        parent=begun.ground,
        message=f"feat(protocol): add plan for {name} [protocol-{number:04d}/00]",
        author=author,
        at=at,
    )


def end_planned(
    work: PlanningWork,
    begun: Begun,
    sight: RepositoryView,
    proposed: ProposedPlan,
    decomposed: Decomposed,
    commit: str,
) -> None:
    """This is the moment in which the plan counts. Raises `StateChanged` when the run was stopped meanwhile."""
    run_id = work.protocol.run_id
    spec = spec_of(decomposed.plan)
    store = work.job.ledger.artifacts
    pack = work.repository.pack(commit, known=[begun.base]) if store.travels else None
    with work.job.write() as tx:
        change_run(
            tx, run_id, RunStatus.PLANNED, expected=(RunStatus.PLANNING,), reason="the plan was accepted"
        )
        problems = record_spec(tx, run_id, spec)
        if problems:
            raise PlanFailed("the plan makes no spec that can be carried out", problems=problems)
        rows = step_rows(spec)
        add_protocol_steps(tx, run_id, rows)
        if pack is not None:
            record_commit(tx, store, run_id, work.protocol.ref, commit, pack)
        _ask(tx, work, decomposed)
        _tell_decomposition(tx, work, decomposed)
        tx.event(
            "planned",
            run_id=run_id,
            project_id=work.project.id,
            message=f"{len(rows)} steps, committed as {commit[:12]}",
            data={
                "steps_created": len(rows),
                "steps": [row["name"] for row in rows],
                "commit": commit,
                "base_commit": begun.base,
                "engine": proposed.engine,
                "models": {
                    "planning": proposed.model,
                    "decompose": work.model("decompose") or proposed.model if decomposed.steps else None,
                },
                "prompt_versions": _prompt_versions(sight, decomposed),
                "spec_hash": spec_hash(spec),
                "repaired": list(proposed.repaired),
                "clarifications": [asked.key for asked in decomposed.plan.questions],
                "usage": asdict(total(tx, "run", run_id)),
            },
        )


def _ask(tx: Transaction, work: PlanningWork, decomposed: Decomposed) -> None:
    for asked in decomposed.plan.questions:
        ask(
            tx,
            work.project.id,
            asked.key,
            asked.question,
            options=list(asked.options) or None,
            recommended=asked.recommended,
            applies_to="execution",
            blocking=asked.blocking,
            run_id=work.protocol.run_id,
        )


def _tell_decomposition(tx: Transaction, work: PlanningWork, decomposed: Decomposed) -> None:
    about = {"run_id": work.protocol.run_id, "project_id": work.project.id}
    for name in decomposed.steps:
        tx.event("step_decomposed", message=f"{name} was taken apart", data={"step": name}, **about)
    for name, why in decomposed.failed.items():
        message = f"{name} stays as it was planned: {why}"
        tx.event("step_decomposition_failed", message=message, data={"step": name, "reason": why}, **about)


def _prompt_versions(sight: RepositoryView, decomposed: Decomposed) -> dict[str, str]:
    versions = {"planning": prompt_version(planner_rules().encode())}
    if sight.guidance is not None:
        versions["guidance"] = prompt_version(sight.guidance.encode())
    if decomposed.steps:
        versions["decompose"] = prompt_version(decomposer_rules().encode())
    return versions
