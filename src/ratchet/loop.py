"""One attempt, for every flow: propose → isolate → judge → keep or discard → record.

Each stage ends with a checkpoint in the ledger. A process that is started again goes on behind the last one: a session
that has ended is not paid for twice, a verdict that was given is not asked for again, and a ref that was moved stays.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ratchet.engines import Engine, Failure, Request, Session, SessionFailed
from ratchet.engines.listening import Listener, listener_for
from ratchet.engines.record import record_session
from ratchet.engines.retrying import propose
from ratchet.judges import AwaitingApproval, Candidate, Judge, hear
from ratchet.judges.record import record_judged
from ratchet.kernel import (
    LedgerError,
    Limits,
    Outcome,
    StateChanged,
    StepStatus,
    Superseded,
    Usage,
    Verdict,
    with_hint,
)
from ratchet.ledger import Transaction
from ratchet.ledger.approvals import still_pending
from ratchet.runtime import JobContext
from ratchet.runtime.attempts import OpenAttempt, take_attempt
from ratchet.workspaces import Commit, Identity, Kind, RefsMoved, Repository, Workspace, WorkspaceError

PROPOSED, JUDGED = "proposed", "judged"
RECORDED = "passed, but a recording moves no ref in a run that is no simulation"
# What each attempt leaves besides transcripts and reports: what its author was asked, and what that came to.
PROMPT_FILE, CHANGE_FILE = "prompt.md", "change.diff"
_VERDICT = "verdict of "


@dataclass(frozen=True, slots=True)
class Plan:
    """What to try: who proposes what and from where, who judges it, and which ref moves if it is better."""

    repository: Repository
    base: str
    ref: str
    engine: Engine
    request: Request
    judge: Judge
    message: str
    incumbent: str | None = None
    """What `ref` must still point at when the change is kept; the base, if not given."""
    discarded: StepStatus = StepStatus.FAILED
    """What becomes of the step when the change is not kept."""
    author: Identity | None = None
    """Whose commit it is; Ratchet's own, if not given."""
    kept: StepStatus = StepStatus.COMPLETED
    """What becomes of it when the change is kept: one that waits for more than this judge needs QA still."""
    kind: Kind | None = None
    """How the author's workspace is made; if not given, the size of the tree decides."""
    prepare: Callable[[Workspace], None] | None = None
    """Puts what the author goes on from into the workspace, which is the base otherwise."""
    equip: Callable[[Request, Workspace], Request] | None = None
    """Gives the author what it needs in its workspace, such as the programs and packages of the project."""
    finish: Callable[[Path, Session], None] | None = None
    """Writes what belongs into the commit besides the author's work, before it is made."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """How an attempt ended. `kept` is true only when a judge passed the commit and the ref moved to it."""

    attempt_id: int
    kept: bool
    outcome: Outcome
    reason: str
    incumbent: str | None = None
    commit: str | None = None
    verdict: Verdict | None = None
    failure: Failure | None = None
    session: Mapping[str, Any] = field(default_factory=dict)


async def attempt(job: JobContext, step_name: str, plan: Plan, *, nth: int = 1) -> Attempted:
    """Make the `nth` attempt at a step and say how it ended; one that ended before is only remembered.

    Raises `BudgetExceeded` before anything is spent when nothing is left, and `AwaitingApproval` when a person has to
    decide: the run is blocked then, and comes back to this place when it is resumed.
    """
    opened = take_attempt(job, step_name, nth=nth)
    if not isinstance(opened, OpenAttempt):
        return _remembered(opened)
    try:
        if PROPOSED not in opened.finished:
            await _propose(opened, plan)
        # The flow may plan anew after a restart, but what was proposed stays as it was.
        plan = replace(
            plan, base=opened.finished[PROPOSED]["base"], incumbent=opened.finished[PROPOSED]["incumbent"]
        )
        ended = None
        while ended is None and JUDGED not in opened.finished:
            ended = await _judge(opened, plan)
        return await asyncio.to_thread(_keep, opened, plan) if ended is None else ended
    except SessionFailed as failed:
        with job.write() as tx:
            return _end(tx, opened, plan, Outcome.ERROR, _told(failed), failure=failed.failure)
    except (AwaitingApproval, Superseded, LedgerError):
        raise
    except Exception as error:
        with job.write() as tx:
            _end(tx, opened, plan, Outcome.ERROR, f"{type(error).__name__}: {error}")
        raise


def _told(failed: SessionFailed) -> str:
    """Why there is nothing to judge, and what to do where trying again would change nothing."""
    return with_hint(failed) if failed.failure.is_hopeless else str(failed)


async def _propose(opened: OpenAttempt, plan: Plan) -> None:
    """Let the engine work in a workspace of its own, and commit what it made."""
    listener = listener_for(opened.job, opened.spender, plan.engine.name, plan.request.model)
    workspace = await asyncio.to_thread(plan.repository.workspace, plan.base, kind=plan.kind)
    limits = plan.request.limits.tightest(opened.limits)
    settings = opened.job.runtime.settings.engines
    try:
        if plan.prepare is not None:
            await asyncio.to_thread(plan.prepare, workspace)
        request = replace(
            plan.request,
            workspace=workspace.path,
            environment={**workspace.environment, **plan.request.environment},
            readable=(*workspace.readable, *plan.request.readable),
            limits=limits,
            deadline_seconds=min(plan.request.deadline_seconds, settings.deadline_seconds),
            listen=listener.hear,
        )
        if plan.equip is not None:
            request = await asyncio.to_thread(plan.equip, request, workspace)
        with listener.listening():
            session = await propose(plan.engine, request, tries=settings.tries)
        made = await asyncio.to_thread(_commit, opened, plan, workspace, session)
    except SessionFailed as failed:
        with listener.settled(opened.job, failed.session.usage) as tx:
            _keep_file(tx, opened, PROMPT_FILE, "text/markdown", plan.request.prompt)
            record_session(tx, opened.artifacts, failed.session, "author", opened.spender, failed)
        raise
    finally:
        await asyncio.to_thread(workspace.discard)
    change = await asyncio.to_thread(plan.repository.diff, plan.base, made.hash)
    with listener.settled(opened.job, session.usage) as tx:
        _keep_file(tx, opened, PROMPT_FILE, "text/markdown", plan.request.prompt)
        _keep_file(tx, opened, CHANGE_FILE, "text/x-diff", change)
        number = record_session(tx, opened.artifacts, session, "author", opened.spender)
        proposed = {
            "base": plan.base,
            "incumbent": plan.incumbent or plan.base,
            "commit": made.hash,
            "workspace": {
                "kind": workspace.kind,
                "reason": workspace.reason,
                "own_commits": made.own_commits,
            },
            "simulated": session.simulated,
            "left": asdict(limits.less(session.usage)),
            "session": {
                "id": number,
                "engine": session.engine,
                "model": session.model,
                "text": session.text,
                "output": session.output,
                "data": session.data,
                "simulated": session.simulated,
            },
        }
        opened.finish(tx, PROPOSED, proposed)
        opened.move_step(tx, StepStatus.NEEDS_QA)


def _keep_file(tx: Transaction, opened: OpenAttempt, name: str, media_type: str, text: str) -> None:
    opened.artifacts.put(
        tx,
        text.encode("utf-8", "replace"),
        name=name,
        media_type=media_type,
        run_id=opened.run.id,
        attempt_id=opened.id,
    )


def _commit(opened: OpenAttempt, plan: Plan, workspace: Workspace, session: Session) -> Commit:
    """What the session made, under a ref of its own: the evidence stays, kept or not."""
    try:
        if plan.finish is not None:
            plan.finish(workspace.path, session)
        made = workspace.commit(plan.message, author=plan.author)
    except WorkspaceError as unfit:
        if isinstance(unfit, RefsMoved):
            plan.repository.restore(unfit.moved)
        raise SessionFailed(Failure.BAD_OUTPUT, str(unfit), session=session, hint=unfit.hint) from unfit
    if not made.changed:
        raise SessionFailed(Failure.BAD_OUTPUT, "the session changed nothing", session=session)
    plan.repository.advance(f"refs/ratchet/attempts/{opened.id}", made.hash, expected=None)
    return made


async def _judge(opened: OpenAttempt, plan: Plan) -> Attempted | None:
    """Have the commit judged, in a checkout that its author never touched. The end, unless it was passed.

    Raises `AwaitingApproval` with the run blocked; returns nothing, and asks for another hearing, if the answer of the
    person has come just then.
    """
    commit = opened.finished[PROPOSED]["commit"]
    listener = listener_for(opened.job, opened.spender, plan.judge.name)
    workspace = await asyncio.to_thread(plan.repository.workspace, commit)
    try:
        candidate = Candidate(
            commit,
            plan.base,
            workspace.path,
            plan.engine.name,
            run_id=opened.run.id,
            attempt_id=opened.id,
            prompt=plan.request.prompt,
            read_diff=functools.cache(functools.partial(plan.repository.diff, plan.base, commit)),
            limits=Limits(**opened.finished[PROPOSED]["left"]),
            listen=listener.hear,
            finished=_earlier_verdicts(opened),
        )
        with listener.listening():
            judged = await hear(plan.judge, candidate)
    except AwaitingApproval as waiting:
        if _wait(opened, listener, waiting):
            raise
        return None
    finally:
        await asyncio.to_thread(workspace.discard)
    used = judged.usage + Usage(trials=int(judged.verdict.score is not None))
    with listener.settled(opened.job, used) as tx:
        record_judged(tx, opened.artifacts, judged, opened.spender)
        if judged.verdict.passed:
            opened.finish(tx, JUDGED, {"verdict": asdict(judged.verdict)})
            return None
        opened.finished[JUDGED] = {"verdict": asdict(judged.verdict)}
        return _end(tx, opened, plan, judged.verdict.outcome, judged.verdict.reason)


def _keep(opened: OpenAttempt, plan: Plan) -> Attempted:
    """Move the ref to the commit that was passed, if it still may be moved, and record the end."""
    outcome, reason = _advance(opened, plan)
    with opened.job.write() as tx:
        return _end(tx, opened, plan, outcome, reason, kept=outcome is Outcome.PASSED)


def _advance(opened: OpenAttempt, plan: Plan) -> tuple[Outcome, str]:
    commit = opened.finished[PROPOSED]["commit"]
    recorded = opened.finished[PROPOSED]["simulated"] or opened.finished[JUDGED]["verdict"]["simulated"]
    if recorded and not opened.run.simulated:
        return Outcome.ERROR, RECORDED
    try:
        plan.repository.advance(plan.ref, commit, expected=plan.incumbent)
    except StateChanged as moved:
        # By this very attempt, before its process died? Then it is kept.
        if not plan.repository.is_ancestor(commit, plan.ref):
            return Outcome.FAILED, f"passed, but not kept: {moved}"
    return Outcome.PASSED, opened.finished[JUDGED]["verdict"]["reason"]


def _end(
    tx: Transaction,
    opened: OpenAttempt,
    plan: Plan,
    outcome: Outcome,
    reason: str,
    *,
    kept: bool = False,
    failure: Failure | None = None,
) -> Attempted:
    proposed, judged = opened.finished.get(PROPOSED, {}), opened.finished.get(JUDGED, {})
    result = {
        "attempt_id": opened.id,
        "kept": kept,
        "outcome": outcome,
        "reason": reason,
        "incumbent": proposed.get("incumbent"),
        "commit": proposed.get("commit"),
        "verdict": judged.get("verdict"),
        "failure": failure,
        "session": proposed.get("session", {}),
    }
    ended = _remembered(result)
    step = plan.kept if kept else plan.discarded
    opened.end(tx, outcome, reason, result, step=step, verdict=ended.verdict)
    return ended


def _wait(opened: OpenAttempt, listener: Listener, waiting: AwaitingApproval) -> bool:
    """Keep what the other judges said meanwhile and block the run, unless the answer has come just now."""
    used = sum((judged.usage for judged in waiting.finished), Usage())
    with listener.settled(opened.job, used) as tx:
        for judged in waiting.finished:
            stage = _VERDICT + judged.verdict.judge_hash
            if stage not in opened.finished:
                record_judged(tx, opened.artifacts, judged, opened.spender)
                opened.finish(tx, stage, asdict(judged.verdict))
        pending = still_pending(tx, waiting.approval_id)
        if pending:
            opened.block(tx, str(waiting))
    return pending


def _earlier_verdicts(opened: OpenAttempt) -> dict[str, Verdict]:
    found = opened.finished.items()
    return {
        name.removeprefix(_VERDICT): Verdict.of(data) for name, data in found if name.startswith(_VERDICT)
    }


def _remembered(result: Mapping[str, Any]) -> Attempted:
    verdict, failure = result["verdict"], result["failure"]
    return Attempted(
        **{
            **result,
            "outcome": Outcome(result["outcome"]),
            "verdict": None if verdict is None else Verdict.of(verdict),
            "failure": None if failure is None else Failure(failure),
        }
    )
