"""Judging a commit that is there already, without a session that made it."""

from __future__ import annotations

import functools

from ratchet.engines.transcript import account_of, write_now
from ratchet.judges import Candidate, Judged
from ratchet.ledger import Spender, Transaction
from ratchet.ledger.holds import hold
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.ledger.runs import get_run, mark_run_simulated
from ratchet.loop import check_out, judge_candidate
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
    async with check_out(repository, base, commit) as checkout:
        candidate = Candidate(
            commit,
            base,
            checkout.directory,
            judge.author,
            run_id=step.run_id,
            attempt_id=attempt_id,
            read_diff=functools.cache(checkout.read_diff),
            limits=limits,
        )
        judgement = await judge_candidate(account_of(job, spender, judge.name), judge, candidate)
    verdict = judgement.judged.verdict

    def record(tx: Transaction) -> None:
        if verdict.simulated:
            mark_run_simulated(tx, step.run_id)
        tx.event(
            "qa_judged",
            run_id=step.run_id,
            step_id=step.step_id,
            attempt_id=attempt_id,
            message=verdict.reason[:1000],
            data={"commit": commit, "outcome": verdict.outcome, "report": verdict.report},
        )

    await judgement.record(write_now(job), record)
    return judgement.judged
