"""One session of a specialist: a workspace made from the best, an engine at work in it, and what it hands in.

An engine that can use tools hands in trials itself and is told how they went. Of any other, what it left in the
workspace is handed in when it has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ratchet.engines import Session, SessionFailed
from ratchet.engines.listening import account_of
from ratchet.engines.run import Keeping
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Misuse, Outcome, TrialStatus, Usage
from ratchet.ledger import Transaction
from ratchet.ledger.research import record_specialist
from ratchet.ledger.runs import close_attempt
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import Submission
from ratchet.loop import ENDED, PROPOSED, passed, run_session
from ratchet.research.asking import asked
from ratchet.research.campaign import Campaign
from ratchet.research.handing import Handing
from ratchet.research.sessions import Idea, hypothesis_of
from ratchet.research.trial import finish_trial
from ratchet.research.turn import Turn
from ratchet.workspaces import Kind, WorkspaceError


@dataclass(frozen=True, slots=True)
class Held:
    """A session that has ended: how it failed, or else what was wrong with what it handed in."""

    failed: SessionFailed | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Left:
    """What a session left in its workspace: a change to be handed in, or what is wrong with that."""

    submission: Submission | None = None
    problem: str | None = None


async def hold_session(campaign: Campaign, turn: Turn) -> Held:
    """Let the engine work, record what it did, what it cost and what it handed in, and try what it left."""
    kind = None if campaign.plan.lineage else Kind.TREE
    repository, base = campaign.repository, turn.base.commit
    workspace = await in_thread(
        lambda: repository.workspace(base, kind=kind), unless=repository.is_at_hand(base)
    )
    try:
        handing = Handing(campaign=campaign, turn=turn, workspace=workspace, parent=turn.base.number)
        problem, trial = await _run(campaign, turn, handing)
        passed(PROPOSED)
    except SessionFailed as failed:
        return Held(failed, str(failed))
    finally:
        await in_thread(workspace.discard, unless=workspace.holds_little())
    if trial is not None:
        await finish_trial(campaign, trial, lambda tx, ended: _close(tx, turn, [ended], None))
    passed(ENDED)
    return Held(None, problem)


async def _run(campaign: Campaign, turn: Turn, handing: Handing) -> tuple[str | None, Trial | None]:
    """What is wrong with what was handed in, and the trial that is still to be made of what was left."""
    engine, model = campaign.engine(turn.specialist), campaign.model(turn.specialist)
    learns = engine.capabilities.learns_scores
    trials = 0

    def count() -> Usage:
        return Usage(trials=len(handing.trials) + trials)

    async def take(session: Session) -> _Left:
        nonlocal trials
        left = _Left() if handing.trials else await _take(handing, session, learns=learns)
        trials = int(left.submission is not None)
        return left

    def ended(tx: Transaction, session: Session, problem: str | None) -> None:
        record_specialist(
            tx,
            campaign.run_id,
            turn.specialist.name,
            session.usage + count(),
            problem=problem,
            # One that failed begins again.
            resume=session.resume if learns and problem is None else None,
            told=turn.told,
        )
        campaign.count_time(tx)

    def record(
        tx: Transaction, _number: int, session: Session, left: _Left
    ) -> tuple[str | None, Trial | None]:
        ended(tx, session, left.problem)
        if left.submission is not None:
            return None, handing.open(tx, left.submission)
        _close(tx, turn, handing.trials, left.problem)
        return left.problem, None

    def failed(tx: Transaction, error: SessionFailed) -> None:
        ended(tx, error.session, str(error))
        _close(tx, turn, handing.trials, str(error))

    return await run_session(
        account_of(campaign.job, turn.opened.spender, engine.name, model),
        campaign.together.write,
        engine,
        asked(campaign, turn, handing),
        # What a search says is all in its proposal, which the trial keeps.
        Keeping(role="author", tries=campaign.job.runtime.settings.engines.tries, transcript=not learns),
        take=take,
        record=record,
        failed=failed,
        also_used=count,
    )


async def _take(handing: Handing, session: Session, *, learns: bool) -> _Left:
    """What the session left in its workspace, as it is handed in."""
    try:
        idea = Idea(hypothesis=hypothesis_of(session.text), parent=handing.parent)
        left = await handing.prepare(idea, proposal=session.data.get("proposal") if learns else None)
    except (Misuse, WorkspaceError) as unfit:
        return _Left(problem=f"the session handed in nothing: {unfit}")
    return _Left(replace(left, simulated=left.simulated or session.simulated))


def _close(tx: Transaction, turn: Turn, trials: list[Trial], problem: str | None) -> None:
    if problem is not None or not trials:
        close_attempt(tx, turn.opened.id, Outcome.ERROR, problem or "the session handed in nothing")
        return
    kept = any(trial.status is TrialStatus.KEEP for trial in trials)
    reason = ", ".join(f"{trial.exp_id} {trial.status}" for trial in trials)
    close_attempt(tx, turn.opened.id, Outcome.PASSED if kept else Outcome.FAILED, reason)
