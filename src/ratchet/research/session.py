"""One session of a specialist: a workspace made from the best, an engine at work in it, and what it hands in.

An engine that can use tools hands in trials itself and is told how they went. Of any other, what it left in the
workspace is handed in when it has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ratchet.engines import Session, SessionFailed
from ratchet.engines.listening import Listener, listener_for
from ratchet.engines.record import record_session
from ratchet.engines.retrying import propose
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Misuse, Outcome, TrialStatus, Usage
from ratchet.ledger import Transaction
from ratchet.ledger.research import record_specialist
from ratchet.ledger.runs import close_attempt
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import Submission
from ratchet.research.asking import asked
from ratchet.research.campaign import Campaign
from ratchet.research.handing import Handing
from ratchet.research.sessions import Idea, hypothesis_of
from ratchet.research.trial import finish_trial
from ratchet.research.turn import Turn
from ratchet.workspaces import Kind, WorkspaceError


@dataclass(frozen=True, slots=True)
class Held:
    """A session that has ended: what it handed in, what it left to be handed in, and what was wrong with it.

    `prompt` is what it was asked.
    """

    session: Session
    prompt: str | None
    trials: tuple[Trial, ...] = ()
    left: Submission | None = None
    failed: SessionFailed | None = None
    problem: str | None = None


async def hold_session(campaign: Campaign, turn: Turn) -> Held:
    """Let the engine work, and record what it did, what it cost and what it handed in."""
    engine, model = campaign.engine(turn.specialist), campaign.model(turn.specialist)
    listener = listener_for(campaign.job, turn.spender, engine.name, model)
    kind = None if campaign.plan.lineage else Kind.TREE
    repository, base = campaign.repository, turn.base.commit
    workspace = await in_thread(
        lambda: repository.workspace(base, kind=kind), unless=repository.is_at_hand(base)
    )
    try:
        handing = Handing(campaign=campaign, turn=turn, workspace=workspace, parent=turn.base.number)
        held = await _converse(campaign, turn, handing, listener)
    finally:
        await in_thread(workspace.discard, unless=workspace.holds_little())
    return await _settle(campaign, turn, handing, listener, held)


async def _converse(campaign: Campaign, turn: Turn, handing: Handing, listener: Listener) -> Held:
    engine, tries = campaign.engine(turn.specialist), campaign.job.runtime.settings.engines.tries
    prompt = None
    try:
        async with asked(campaign, turn, handing) as request:
            prompt = request.prompt
            with listener.listening():
                session = await propose(engine, replace(request, listen=listener.hear), tries=tries)
    except SessionFailed as failed:
        return Held(failed.session, prompt, tuple(handing.trials), failed=failed, problem=str(failed))
    if handing.trials:
        return Held(session, prompt, tuple(handing.trials))
    try:
        proposal = session.data.get("proposal") if engine.capabilities.learns_scores else None
        idea = Idea(hypothesis=hypothesis_of(session.text), parent=handing.parent)
        left = await handing.prepare(idea, proposal=proposal)
    except (Misuse, WorkspaceError) as unfit:
        return Held(session, prompt, problem=f"the session handed in nothing: {unfit}")
    return Held(session, prompt, left=replace(left, simulated=left.simulated or session.simulated))


async def _settle(campaign: Campaign, turn: Turn, handing: Handing, listener: Listener, held: Held) -> Held:
    """Record the session and, in the same transaction, the trial that it left; then make that trial."""
    used = held.session.usage + Usage(trials=len(held.trials) + int(held.left is not None))
    learns = campaign.engine(turn.specialist).capabilities.learns_scores
    # What a search says is all in its proposal, which the trial keeps, and nobody asks it in words.
    session = replace(held.session, transcript=b"") if learns else held.session
    prompt = None if learns else held.prompt

    def write(tx: Transaction) -> Trial | None:
        record_session(
            tx, campaign.job.ledger.artifacts, session, "author", turn.spender, held.failed, prompt=prompt
        )
        record_specialist(
            tx,
            campaign.run_id,
            turn.specialist.name,
            used,
            problem=held.problem,
            # One that failed begins anew.
            resume=held.session.resume if learns and held.problem is None else None,
            told=turn.told,
        )
        campaign.count_time(tx)
        if held.left is not None:
            return handing.open(tx, held.left)
        _close(tx, turn, held.trials, held.problem)
        return None

    trial = await listener.settle(campaign.together, used, write)
    if trial is None:
        return held
    ended = await finish_trial(campaign, trial, lambda tx, ended: _close(tx, turn, (ended,), None))
    return replace(held, trials=(ended,))


def _close(tx: Transaction, turn: Turn, trials: tuple[Trial, ...], problem: str | None) -> None:
    if problem is not None or not trials:
        close_attempt(tx, turn.attempt_id, Outcome.ERROR, problem or "the session handed in nothing")
        return
    kept = any(trial.status is TrialStatus.KEEP for trial in trials)
    told = ", ".join(f"{trial.exp_id} {trial.status}" for trial in trials)
    close_attempt(tx, turn.attempt_id, Outcome.PASSED if kept else Outcome.FAILED, told)
