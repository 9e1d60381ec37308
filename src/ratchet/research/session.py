"""One session of a specialist: a workspace made from the best, an engine at work in it, and what it hands in.

An engine that can use tools hands in trials itself and gets their results. Of any other, what it left in the
workspace is handed in when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ratchet.engines import EngineTool, Request, Session, SessionFailed
from ratchet.engines.run import Keeping
from ratchet.engines.tool_server import Way, offer, way_to
from ratchet.engines.transcript import account_of
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Misuse, Outcome, TrialStatus, Usage
from ratchet.ledger import Transaction
from ratchet.ledger.research import record_specialist
from ratchet.ledger.runs import close_attempt
from ratchet.ledger.trials import Submission, Trial
from ratchet.loop import ENDED, PROPOSED, passed, run_session
from ratchet.research.adapter import Specialist
from ratchet.research.campaign import REPLAY, Campaign
from ratchet.research.measurement.checkout import recipe_patterns
from ratchet.research.scheduler import SessionTurn
from ratchet.research.sessions import (
    Beside,
    Idea,
    SessionContext,
    hypothesis_of,
    shared_prompt,
    system_prompt,
    tools_for,
    user_prompt,
)
from ratchet.research.sessions.author import PROPOSALS, RecipeProposal, write_texts
from ratchet.research.sessions.context import HookCalls, check_strays
from ratchet.research.trial import finish_trial, nothing_else, open_named
from ratchet.workspaces import RefsMoved, Workspace, WorkspaceError, WorkspaceKind
from ratchet.workspaces.directories import remove_tree


@asynccontextmanager
async def session_tools(
    context: SessionContext, *, engine: str, with_tools: bool = True
) -> AsyncIterator[tuple[EngineTool, ...]]:
    """The tools of a session, which is held inside the block by the task that enters it.

    For an engine that takes none they need not be made: then `with_tools` is false.

    When it is left, what the session handed in has been measured; a cancellation from outside cuts also that short.
    Raises `SessionFailed` when a hook broke, and what `SessionContext.submit` raised if the model could not fix it.
    """
    hooks = HookCalls(context, engine)
    tools = tuple(map(hooks.watched, tools_for(context))) if with_tools else ()
    try:
        await hooks.started()
        async with _measured(context), _breakable(context):
            yield tools
        if context.broken is not None:
            raise context.broken
    except asyncio.CancelledError:
        # It counts for more than what a hook has to say about it.
        with contextlib.suppress(Exception):
            await hooks.ended("it was cancelled")
        raise
    except Exception as error:
        await hooks.ended(str(error))
        raise
    await hooks.ended(None)


@asynccontextmanager
async def _measured(context: SessionContext) -> AsyncIterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        await context.settled(cancel=True)
        raise
    except Exception:
        await context.settled()
        raise
    await context.settled()


@asynccontextmanager
async def _breakable(context: SessionContext) -> AsyncIterator[None]:
    """Cancels the block when the session is broken off, and raises the reason for that."""
    task = asyncio.current_task()
    assert task is not None
    asked_before = task.cancelling()
    context.on_break = task.cancel
    try:
        yield
        if context.broken is not None:
            # It had ended in that very moment: let the cancellation arrive here and not later.
            await asyncio.sleep(0)
    except BaseException as error:
        if context.broken is None:
            raise
        from_outside = task.uncancel() > asked_before
        if from_outside and isinstance(error, asyncio.CancelledError):
            raise
    finally:
        context.on_break = None
    if context.broken is not None:
        raise context.broken


@asynccontextmanager
async def session_request(
    campaign: Campaign, turn: SessionTurn, submissions: Submissions
) -> AsyncIterator[Request]:
    """The request of a session that is held inside the block."""
    engine = campaign.engine(turn.specialist)
    if engine.capabilities.learns_scores:
        yield _search(campaign, turn, submissions)
        return
    context = SessionContext(
        run_id=campaign.run_id,
        task=campaign.task,
        specialist=turn.specialist,
        repository=campaign.repository,
        workspace=submissions.workspace,
        parent=submissions.parent,
        submit=submissions.submit,
        read=campaign.job.ledger.read,
        write=campaign.job.write,
        lineage=turn.with_history,
        trials=submissions.trials,
    )
    way = way_to(engine)
    async with session_tools(context, engine=engine.name, with_tools=way is not Way.NONE) as tools:
        async with offer(engine, _conversation(campaign, turn, submissions, way), tools) as offered:
            yield offered.request
        submissions.parent = context.parent


def _conversation(campaign: Campaign, turn: SessionTurn, submissions: Submissions, way: Way) -> Request:
    specialist, workspace = turn.specialist, submissions.workspace
    most = campaign.stops.trials
    return Request(
        prompt=user_prompt(
            campaign.task,
            specialist,
            directory=workspace.path,
            parent=submissions.parent,
            lineage=turn.lineage,
            limits=turn.opened.limits,
            seconds=turn.seconds,
            trials_left=None if most is None else most - turn.standing.trials,
            way=way,
            shown=turn.shown,
            beside=[Beside(each, _difference(campaign, turn.base.commit, each)) for each in turn.beside],
            siblings=turn.siblings,
        ),
        system=_system_prompt(campaign, specialist, way, lineage=turn.with_history),
        model=campaign.model(specialist),
        workspace=workspace.path,
        environment=workspace.environment,
        readable=workspace.readable,
        hidden=campaign.evaluators,
        deadline_seconds=turn.seconds,
        limits=turn.opened.limits,
    )


def _difference(campaign: Campaign, base: str, trial: Trial) -> str:
    assert trial.commit is not None
    return campaign.repository.diff(base, trial.commit)


def _system_prompt(campaign: Campaign, specialist: Specialist, way: Way, *, lineage: bool) -> str:
    shared = campaign.shared_prompts.get((way, lineage))
    if shared is None:
        shared = shared_prompt(campaign.task, lineage=lineage, way=way)
        campaign.shared_prompts[(way, lineage)] = shared
    return system_prompt(campaign.task, specialist, lineage=lineage, way=way, shared=shared)


def _search(campaign: Campaign, turn: SessionTurn, submissions: Submissions) -> Request:
    """A search is asked by numbers: what it proposed and how that did, and which draw this is."""
    index = campaign.specialists.index(turn.specialist)
    data: dict[str, Any] = {
        "feedback": [_fed(trial) for trial in turn.news if trial.proposal is not None and _counts(trial)],
        "trial": campaign.next_draw(),
        "goal": str(campaign.task.direction),
        # One that has settled starts again, elsewhere.
        "seed": campaign.plan.seed + 1000 * index + turn.row.failures,
        "files": recipe_patterns(campaign.task, submissions.workspace.path),
        # Of the recipe as it came its author decides; a later best may be anybody's.
        "moving": turn.base.number != 0,
    }
    return Request(
        prompt="",
        model=campaign.model(turn.specialist),
        workspace=submissions.workspace.path,
        resume=turn.row.resume,
        deadline_seconds=turn.seconds,
        limits=turn.opened.limits,
        data=data,
    )


def _counts(trial: Trial) -> bool:
    return trial.status is not None and trial.status.tried


def _fed(trial: Trial) -> dict[str, Any]:
    valid = trial.status in (TrialStatus.KEEP, TrialStatus.DISCARD)
    return {"proposal": trial.proposal, "score": trial.score if valid else None}


@dataclass(kw_only=True)
class Submissions:
    """What one session has handed in so far. `parent` is the trial that the workspace was made from."""

    campaign: Campaign
    turn: SessionTurn
    workspace: Workspace
    parent: int
    trials: list[Trial] = field(default_factory=list)
    _ideas: dict[str, Any] = field(default_factory=dict)
    _codes: set[str] = field(default_factory=set)
    _more: list[str] = field(default_factory=list)

    async def submit(self, idea: Idea) -> Trial:
        """Commit, measure, decide. Later edits of the workspace change nothing any more."""
        submission = await self.prepare(idea)
        with self.campaign.job.write() as tx:
            trial = self.open(tx, submission)
        return await finish_trial(self.campaign, trial)

    def open(self, tx: Transaction, submission: Submission) -> Trial:
        """The trial that what was prepared becomes, together with its commit."""
        trial = open_named(tx, self.campaign, submission)
        tx.after_commit(lambda: self._count(trial))
        return trial

    async def prepare(self, idea: Idea, *, proposal: Any = None) -> Submission:
        """A commit of the workspace with what is said about it.

        Raises `Misuse` when nothing was changed, or more than a candidate may have.
        """
        specialist = self.turn.specialist
        engine = self.campaign.engine(specialist)
        learns = engine.capabilities.learns_scores
        if not learns:
            # A search writes what it was given and nothing else.
            await asyncio.to_thread(check_strays, self.campaign.task, self.workspace)
        origin = {} if learns else await asyncio.to_thread(self._origin, idea)
        commit = await asyncio.to_thread(self._commit, idea.hypothesis)
        return Submission(
            specialist=specialist.name,
            domain=specialist.domain,
            hypothesis=idea.hypothesis,
            expected_delta=idea.expected_delta,
            notes=idea.notes,
            commit=commit,
            parent=idea.parent,
            attempt_id=self.turn.opened.id,
            proposal=proposal,
            origin=origin or None,
            simulated=engine.name == REPLAY,
        )

    async def prepare_proposal(self, proposal: RecipeProposal) -> Submission:
        """As `prepare`, of what is not in the workspace: a change of the files that the session began with."""
        await asyncio.to_thread(self.workspace.rebase, self.turn.base.commit)
        await asyncio.to_thread(write_texts, self.workspace.path, proposal.texts)
        return await self.prepare(Idea(hypothesis=hypothesis_of(proposal.said), parent=self.turn.base.number))

    def promise_one_more(self) -> bool:
        """Whether the run has one trial more for this session than it was promised. If so, that is promised now."""
        campaign = self.campaign
        most = campaign.stops.trials
        if most is not None and campaign.submitted + len(campaign.promised) >= most:
            return False
        self._more.append(f"{self.turn.lane.name}+{len(self._more) + 1}")
        campaign.promised.add(self._more[-1])
        return True

    def take_back(self) -> None:
        """What was promised beside the first trial and was not made."""
        self.campaign.promised.difference_update(self._more)

    def _count(self, trial: Trial) -> None:
        """A promised trial is being made."""
        promised = self.campaign.promised
        if self.turn.lane.name in promised or not self._more:
            promised.discard(self.turn.lane.name)
        else:
            promised.discard(self._more.pop())
        self.campaign.submitted += 1
        code = (trial.origin or {}).get("code")
        if code is not None:
            self.campaign.novelty.add(code, trial.number, self._ideas.pop(code, None))

    def _origin(self, idea: Idea) -> dict[str, Any]:
        """How the program came about, and what kind it is. Raises `Misuse` for one that was tried before."""
        campaign, choice = self.campaign, self.turn.choice
        origin: dict[str, Any] = {"strategy": campaign.strategy}
        if choice.inspirations:
            origin["inspirations"] = list(choice.inspirations)
        if choice.island is not None:
            origin["island"] = choice.island
        found = campaign.novelty.read(self.workspace.path)
        if found is None or not self.workspace.changes():
            # Of no change at all the commit says so.
            return origin
        campaign.novelty.check(found)
        if found.code in self._codes:
            raise Misuse("this is another proposal of the same answer again, but for its looks")
        self._codes.add(found.code)
        if campaign.novelty.compares_ideas:
            before = campaign.novelty.read_commit(campaign.repository, self.turn.base.commit).texts
            new = campaign.novelty.idea(idea.hypothesis, before, found.texts)
            campaign.novelty.check_idea(new)
            self._ideas[found.code] = new
        return {**origin, **found.record()}

    def _commit(self, hypothesis: str) -> str:
        for name in self.campaign.task.output_dirs:
            remove_tree(self.workspace.path / name)
        try:
            made = self.workspace.commit(f"{hypothesis}\n\nSpecialist: {self.turn.specialist.name}\n")
        except RefsMoved as moved:
            self.campaign.repository.restore(moved.moved)
            raise
        if not made.changed:
            raise Misuse("nothing was changed, so there is nothing to try", hint="edit the recipe first")
        if self.campaign.travels:
            base = self.turn.base.commit
            self.campaign.packs[made.hash] = self.campaign.repository.pack(made.hash, known=[base])
        return made.hash


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """A session that has ended: how it failed, or else what was wrong with what it handed in."""

    failed: SessionFailed | None = None
    problem: str | None = None
    used: Usage = field(default_factory=Usage)
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class _Left:
    """What a session left in its workspace and proposed beside it, to be handed in, or what is wrong with that."""

    submissions: tuple[Submission, ...] = ()
    problem: str | None = None


async def hold_session(campaign: Campaign, turn: SessionTurn) -> SessionEnd:
    """Let the engine work, record what it did, what it cost and what it handed in, and try what it left."""
    kind = None if turn.with_history else WorkspaceKind.TREE
    repository, base = campaign.repository, turn.base.commit
    workspace = await in_thread(
        lambda: repository.workspace(base, kind=kind), unless=repository.is_at_hand(base)
    )
    submissions = Submissions(campaign=campaign, turn=turn, workspace=workspace, parent=turn.base.number)
    try:
        ended, opened = await _run(campaign, turn, submissions)
        passed(PROPOSED)
    except SessionFailed as failed:
        used = failed.session.usage
        return SessionEnd(failed, str(failed), used, tuple(submissions.trials))
    finally:
        submissions.take_back()
        await in_thread(workspace.discard, unless=workspace.holds_little())
    trials = list(submissions.trials)
    for trial in opened:
        close = partial(_close_last, turn=turn, before=tuple(trials)) if trial is opened[-1] else nothing_else
        trials.append(await finish_trial(campaign, trial, close))
    passed(ENDED)
    return replace(ended, trials=tuple(trials))


async def _run(
    campaign: Campaign, turn: SessionTurn, submissions: Submissions
) -> tuple[SessionEnd, list[Trial]]:
    """How the session has ended, and the trials that are still to be made of what was left."""
    engine, model = campaign.engine(turn.specialist), campaign.model(turn.specialist)
    learns = engine.capabilities.learns_scores
    trials = 0

    def count() -> Usage:
        return Usage(trials=len(submissions.trials) + trials)

    async def take(session: Session) -> _Left:
        nonlocal trials
        left = _Left() if submissions.trials else await _take(submissions, session, learns=learns)
        trials = len(left.submissions)
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
            told=turn.reported,
        )
        campaign.count_time(tx)

    def record(
        tx: Transaction, _number: int, session: Session, left: _Left
    ) -> tuple[SessionEnd, list[Trial]]:
        ended(tx, session, left.problem)
        if not left.submissions:
            _close(tx, turn, submissions.trials, left.problem)
        end = SessionEnd(problem=left.problem, used=session.usage)
        return end, [submissions.open(tx, each) for each in left.submissions]

    def failed(tx: Transaction, error: SessionFailed) -> None:
        ended(tx, error.session, str(error))
        _close(tx, turn, submissions.trials, str(error))

    return await run_session(
        account_of(campaign.job, turn.opened.spender, engine.name, model),
        campaign.together.write,
        engine,
        session_request(campaign, turn, submissions),
        # What a search says is all in its proposal, which the trial keeps.
        Keeping(role="author", tries=campaign.job.runtime.settings.engines.tries, transcript=not learns),
        take=take,
        record=record,
        failed=failed,
        also_used=count,
    )


async def _take(submissions: Submissions, session: Session, *, learns: bool) -> _Left:
    """What the session left in its workspace, and what it proposed beside it, as it is handed in."""
    found: list[Submission] = []
    problem: str | None = None
    others: list[RecipeProposal] = session.data.get(PROPOSALS, [])
    try:
        idea = Idea(hypothesis=hypothesis_of(session.text), parent=submissions.parent)
        found.append(
            await submissions.prepare(idea, proposal=session.data.get("proposal") if learns else None)
        )
    except (Misuse, WorkspaceError) as unfit:
        problem = f"the session submitted nothing: {unfit}"
    for other in others:
        if found and not submissions.promise_one_more():
            break
        try:
            found.append(await submissions.prepare_proposal(other))
        except (Misuse, WorkspaceError) as unfit:
            problem = problem or f"the session submitted nothing: {unfit}"
    if not found:
        return _Left(problem=problem)
    return _Left(tuple(replace(each, simulated=each.simulated or session.simulated) for each in found))


def _close_last(tx: Transaction, ended: Trial, *, turn: SessionTurn, before: tuple[Trial, ...]) -> None:
    _close(tx, turn, [*before, ended], None)


def _close(tx: Transaction, turn: SessionTurn, trials: list[Trial], problem: str | None) -> None:
    if problem is not None or not trials:
        close_attempt(tx, turn.opened.id, Outcome.ERROR, problem or "the session submitted nothing")
        return
    kept = any(trial.status is TrialStatus.KEEP for trial in trials)
    reason = ", ".join(f"{trial.exp_id} {trial.status}" for trial in trials)
    close_attempt(tx, turn.opened.id, Outcome.PASSED if kept else Outcome.FAILED, reason)
