"""Judging a commit that is there already, without a session that made it."""

from __future__ import annotations

import asyncio
import functools

from ratchet.engines.listening import listener_for
from ratchet.judges import Candidate, Judged, hear
from ratchet.judges.record import record_judged
from ratchet.ledger import Spender
from ratchet.ledger.holds import hold
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.ledger.runs import get_run, mark_run_simulated
from ratchet.protocols.qa.judge import QaJudge
from ratchet.runtime import JobContext, configured_budgets
from ratchet.workspaces import Repository


async def judge_step_commit(
    job: JobContext,
    step: ProtocolStep,
    repository: Repository,
    judge: QaJudge,
    *,
    commit: str,
    base: str,
    attempt_id: int | None = None,
) -> Judged:
    """Have `commit` judged in a fresh checkout, and its evidence recorded with the run, or with an attempt of it.

    What becomes of the step is the caller's to say. Raises `BudgetExceeded` before anything is spent. A process that
    dies in between has recorded no verdict, only what was used.
    """
    with job.write() as tx:
        spender = Spender(attempt_id, step.run_id, get_run(tx, step.run_id).project_id)
        limits = hold(
            tx, Spender(None, step.run_id, spender.project_id), configured_budgets(job.runtime.settings)
        )
    listener = listener_for(job, spender, judge.name)
    workspace = await asyncio.to_thread(repository.workspace, commit)
    try:
        candidate = Candidate(
            commit,
            base,
            workspace.path,
            judge.author,
            run_id=step.run_id,
            attempt_id=attempt_id,
            read_diff=functools.cache(functools.partial(repository.diff, base, commit)),
            limits=limits,
            listen=listener.hear,
        )
        with listener.listening():
            judged = await hear(judge, candidate)
    finally:
        await asyncio.to_thread(workspace.discard)
    with listener.settled(job, judged.usage) as tx:
        record_judged(tx, job.ledger.artifacts, judged, spender)
        if judged.verdict.simulated:
            mark_run_simulated(tx, step.run_id)
        tx.event(
            "qa_judged",
            run_id=step.run_id,
            step_id=step.step_id,
            attempt_id=attempt_id,
            message=judged.verdict.reason[:1000],
            data={"commit": commit, "outcome": judged.verdict.outcome, "report": judged.verdict.report},
        )
    return judged
