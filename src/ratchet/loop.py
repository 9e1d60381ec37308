"""One attempt, for every flow: propose → isolate → judge → keep or discard → record.

Each stage ends with a checkpoint in the ledger. A process that is started again resumes behind the last one: a session
that has ended is not paid for twice, a verdict that was given is not asked for again, and a ref that was moved stays.

`attempt` is all stages for one candidate. A session that hands in several (research) uses the same parts one by one:
`begin_attempt`, `run_session`, `judge_candidate`, and `Judgement.record` for each candidate.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ratchet.engines import Engine, Failure, Request, Session, SessionFailed
from ratchet.engines.run import Keeping, plain, run_session
from ratchet.engines.transcript import Account, SessionListener, SessionWriter, account_of, write_now
from ratchet.judges import Candidate, Judge, Judged, Report, hear
from ratchet.judges.judge import record_judged
from ratchet.kernel import (
    LedgerError,
    LedgerUnavailable,
    Limits,
    Outcome,
    StateChanged,
    StepStatus,
    Superseded,
    Usage,
    Verdict,
    Waiting,
    exhausted,
    with_hint,
)
from ratchet.ledger import Transaction
from ratchet.runtime import JobContext
from ratchet.runtime.attempts import OpenAttempt, begin_attempt, take_attempt
from ratchet.workspaces import (
    Commit,
    Identity,
    RefsMoved,
    Repository,
    RepositoryUnwritable,
    Workspace,
    WorkspaceError,
    WorkspaceKind,
)
from ratchet.workspaces.packs import record_commit

__all__ = [
    "Attempted",
    "Checkout",
    "GitTrunk",
    "Judgement",
    "OpenAttempt",
    "Plan",
    "Proposal",
    "Trunk",
    "Workplace",
    "attempt",
    "begin_attempt",
    "judge_candidate",
    "run_session",
    "watched",
]

T = TypeVar("T")
OPENED, PROPOSED, JUDGED, KEPT, ENDED = "opened", "proposed", "judged", "kept", "ended"
_watch: ContextVar[Callable[[str], None]] = ContextVar("watch", default=lambda _stage: None)
RECORDED = "a recording changes nothing in a run that is no simulation"
# What each attempt leaves besides transcripts and reports: what its author was asked, and what that came to.
PROMPT_FILE, CHANGE_FILE = "prompt.md", "change.diff"
_AUTHOR = "author"


@contextlib.contextmanager
def watched(by: Callable[[str], None]) -> Iterator[None]:
    """Call `by` with the name of each stage that an attempt or a trial inside of the block has behind it."""
    token = _watch.set(by)
    try:
        yield
    finally:
        _watch.reset(token)


def passed(stage: str) -> None:
    """Tell who watches that a stage is over, and on record."""
    _watch.get()(stage)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What was taken from a session. Without a `commit` there is nothing to judge.

    `data` is kept with the checkpoint of the session, for whoever keeps or discards the proposal; `files` are stored
    as artifacts of the attempt. Where commits travel, `pack` is what the commit adds to its base, and `ref` its name.
    """

    commit: str | None
    data: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[Report, ...] = ()
    ref: str = ""
    pack: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where an engine works: what it is asked there, and how its work is taken, which may raise `SessionFailed`."""

    request: Request
    take: Callable[[Session], Awaitable[Proposal]]


@dataclass(frozen=True, slots=True)
class Checkout:
    """A proposal as its judge sees it, in a directory that its author never wrote."""

    directory: Path
    base: str
    read_diff: Callable[[], str] = str


class Trunk(Protocol):
    """What an attempt moves forward: a ref, the versions of an agent. What it needs to know of the stages that are
    behind it is in `opened.finished`, since another process may have made them."""

    def workplace(self, opened: OpenAttempt, request: Request) -> AbstractAsyncContextManager[Workplace]:
        """Where the engine works on a copy."""
        ...

    def checkout(self, opened: OpenAttempt) -> AbstractAsyncContextManager[Checkout]:
        """What was proposed, for the judge."""
        ...

    async def keep(self, opened: OpenAttempt) -> tuple[Outcome, str]:
        """Move to what was proposed, by compare-and-set. Done again after a kill, it finds what it has done.

        Raises `Waiting` where that needs an answer from outside: the attempt stays open, and is kept once it is there.
        """
        ...

    async def discard(self, opened: OpenAttempt, failure: Failure | None) -> Mapping[str, Any]:
        """Clear away what is not kept. What is to be remembered of it."""
        ...

    def end(self, tx: Transaction, opened: OpenAttempt, *, kept: bool) -> Mapping[str, Any]:
        """Record what belongs to the end, in its transaction. What is to be remembered with the result."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to try: who proposes what, what moves if it is better, and who judges that."""

    trunk: Trunk
    engine: Engine
    request: Request
    judge: Judge
    kept: StepStatus = StepStatus.COMPLETED
    """What becomes of the step when the change is kept: one that waits for more than this judge needs QA still."""
    discarded: StepStatus = StepStatus.FAILED
    """What becomes of it when the change is not kept."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """What the step is described by when the first attempt makes it."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """How an attempt ended. `kept` is true only when what was proposed passed its judge and the trunk moved to it.

    `more` is what the trunk remembers of it.
    """

    attempt_id: int
    kept: bool
    outcome: Outcome
    reason: str
    incumbent: str | None = None
    commit: str | None = None
    verdict: Verdict | None = None
    failure: Failure | None = None
    session: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Attempted:
        """What was recorded of an attempt that has ended."""
        known = {name: value for name, value in result.items() if name in _FIELDS}
        outcome, verdict, failure = Outcome(result["outcome"]), result.get("verdict"), result.get("failure")
        return cls(
            **{
                "attempt_id": 0,
                "kept": outcome is Outcome.PASSED,
                **known,
                "outcome": outcome,
                "verdict": None if verdict is None else Verdict.of(verdict),
                "failure": None if failure is None else Failure(failure),
                "more": {name: value for name, value in result.items() if name not in _FIELDS},
            }
        )


_FIELDS = {each.name for each in fields(Attempted)} - {"more"}


async def attempt(job: JobContext, step_name: str, plan: Plan, *, nth: int = 1) -> Attempted:
    """Make the `nth` attempt at a step and return how it ended; one that ended before is only remembered.

    Raises `BudgetExceeded` before anything is spent when nothing is left.
    """
    opened = take_attempt(job, step_name, nth=nth, spec=plan.spec)
    if not isinstance(opened, OpenAttempt):
        return Attempted.of(opened)
    ended = await _make(opened, plan)
    passed(ENDED)
    return ended


async def _make(opened: OpenAttempt, plan: Plan) -> Attempted:
    try:
        if PROPOSED not in opened.finished:
            passed(OPENED)
            await _propose(opened, plan)
            passed(PROPOSED)
        if opened.finished[PROPOSED]["commit"] is not None and JUDGED not in opened.finished:
            rejected = await _judge(opened, plan)
            if rejected is not None:
                return rejected
        return await _keep(opened, plan)
    except SessionFailed as failed:
        return await _end(opened, plan, Outcome.ERROR, _reason(failed), failure=failed.failure)
    except (Superseded, LedgerError, Waiting):
        raise
    except Exception as error:
        if exhausted(error) is not None:
            # Left as by a process that died: the attempt continues when the machine has room.
            raise
        await _end(opened, plan, Outcome.ERROR, f"{type(error).__name__}: {error}")
        raise


def _reason(failed: SessionFailed) -> str:
    """Why there is nothing to judge, and what to do where another session must be different for that."""
    helps = failed.failure.is_hopeless or failed.failure is Failure.BAD_OUTPUT
    return with_hint(failed) if helps else str(failed)


async def _propose(opened: OpenAttempt, plan: Plan) -> None:
    """Let the engine work in a workspace of its own, and checkpoint what it made."""
    settings = opened.job.runtime.settings.engines
    limits = plan.request.limits.tightest(opened.limits)
    deadline = min(plan.request.deadline_seconds, settings.deadline_seconds)
    request = replace(plan.request, limits=limits, deadline_seconds=deadline)

    def record(tx: Transaction, number: int, session: Session, proposal: Proposal) -> None:
        _store(tx, opened, proposal.files)
        if proposal.pack is not None and proposal.commit is not None:
            record_commit(tx, opened.artifacts, opened.run.id, proposal.ref, proposal.commit, proposal.pack)
        proposed = {
            **proposal.data,
            "commit": proposal.commit,
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

    async with plan.trunk.workplace(opened, request) as place:
        await run_session(
            account_of(opened.job, opened.spender, plan.engine.name, request.model),
            write_now(opened.job),
            plan.engine,
            plain(place.request),
            Keeping(role=_AUTHOR, tries=settings.tries, prompt_file=PROMPT_FILE),
            take=place.take,
            record=record,
        )


def _store(tx: Transaction, opened: OpenAttempt, files: tuple[Report, ...]) -> None:
    for each in files:
        opened.artifacts.put(
            tx,
            each.content,
            name=each.name,
            media_type=each.media_type,
            run_id=opened.run.id,
            attempt_id=opened.id,
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge said of a candidate, not yet recorded."""

    judged: Judged
    account: Account
    listener: SessionListener

    async def record(self, write: SessionWriter, also: Callable[[Transaction], T], *, trials: int = 0) -> T:
        """Record the evidence and what it used, and do what `also` does, in one transaction."""

        def work(tx: Transaction) -> T:
            record_judged(tx, self.account.ledger.artifacts, self.judged, self.account.spender)
            return also(tx)

        for session in self.judged.sessions:
            self.listener.learn(session.engine, session.model)
        done = await self.listener.record(write, self.judged.usage + Usage(trials=trials), work)
        passed(JUDGED)
        return done


async def judge_candidate(account: Account, judge: Judge, candidate: Candidate) -> Judgement:
    """Ask a judge. Whatever the candidate does, there is an answer, and never a good one by accident."""
    listener = SessionListener(account)
    with listener.listening():
        return Judgement(await hear(judge, replace(candidate, listen=listener.hear)), account, listener)


async def _judge(opened: OpenAttempt, plan: Plan) -> Attempted | None:
    """Have what was proposed judged. The end, unless it passed."""
    proposed = opened.finished[PROPOSED]
    account = account_of(opened.job, opened.spender, plan.judge.name)
    async with plan.trunk.checkout(opened) as checkout:
        candidate = Candidate(
            proposed["commit"],
            checkout.base,
            checkout.directory,
            plan.engine.name,
            run_id=opened.run.id,
            attempt_id=opened.id,
            prompt=plan.request.prompt,
            read_diff=functools.cache(checkout.read_diff),
            limits=Limits(**proposed.get("left", {})),
        )
        judgement = await judge_candidate(account, plan.judge, candidate)
    verdict = judgement.judged.verdict
    judged = {"verdict": asdict(verdict), "found": dict(judgement.judged.found)}
    trials = int(verdict.score is not None)
    write = write_now(opened.job)
    if verdict.passed:
        await judgement.record(write, lambda tx: opened.finish(tx, JUDGED, judged), trials=trials)
        return None
    more = await plan.trunk.discard(opened, None)
    opened.finished[JUDGED] = judged
    end = functools.partial(
        _ended, opened=opened, plan=plan, outcome=verdict.outcome, reason=verdict.reason, more=more
    )
    return await judgement.record(write, end, trials=trials)


async def _keep(opened: OpenAttempt, plan: Plan) -> Attempted:
    """Move the trunk to what passed, if it still may be moved, and record the end."""
    proposed, judged = opened.finished[PROPOSED], opened.finished.get(JUDGED)
    recorded = proposed["simulated"] or (judged is not None and judged["verdict"]["simulated"])
    if recorded and not opened.run.simulated:
        return await _end(opened, plan, Outcome.ERROR, RECORDED)
    outcome, reason = await plan.trunk.keep(opened)
    passed(KEPT)
    return await _end(opened, plan, outcome, reason)


async def _end(
    opened: OpenAttempt, plan: Plan, outcome: Outcome, reason: str, *, failure: Failure | None = None
) -> Attempted:
    more = {} if outcome is Outcome.PASSED else await plan.trunk.discard(opened, failure)
    with opened.job.write() as tx:
        return _ended(
            tx, opened=opened, plan=plan, outcome=outcome, reason=reason, failure=failure, more=more
        )


def _ended(
    tx: Transaction,
    *,
    opened: OpenAttempt,
    plan: Plan,
    outcome: Outcome,
    reason: str,
    more: Mapping[str, Any],
    failure: Failure | None = None,
) -> Attempted:
    """Record the end. For a change that is kept, this is the moment in which it counts."""
    proposed, judged = opened.finished.get(PROPOSED, {}), opened.finished.get(JUDGED, {})
    kept = outcome is Outcome.PASSED
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
        **plan.trunk.end(tx, opened, kept=kept),
        **more,
    }
    ended = Attempted.of(result)
    step = plan.kept if kept else plan.discarded
    opened.end(tx, outcome, reason, result, step=step, verdict=ended.verdict)
    return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class GitTrunk:
    """A ref of a repository, which moves to a commit that is made in a workspace at `base`."""

    repository: Repository
    base: str
    ref: str
    message: str
    incumbent: str | None = None
    """What `ref` must still point at when the change is kept; the base, if not given."""
    author: Identity | None = None
    """Whose commit it is; Ratchet's own, if not given."""
    kind: WorkspaceKind | None = None
    """How the author's workspace is made; if not given, the size of the tree decides."""
    prepare: Callable[[Workspace], None] | None = None
    """Puts what the author continues from into the workspace, which is the base otherwise."""
    equip: Callable[[Request, Workspace], Request] | None = None
    """Gives the author what it needs in its workspace, such as the programs and packages of the project."""
    finish: Callable[[Path, Session], None] | None = None
    """Writes what belongs into the commit besides the author's work, before it is made."""

    @contextlib.asynccontextmanager
    async def workplace(self, opened: OpenAttempt, request: Request) -> AsyncIterator[Workplace]:
        async with _workspace(self.repository, self.base, self.kind) as workspace:
            if self.prepare is not None:
                await asyncio.to_thread(self.prepare, workspace)
            request = replace(
                request,
                workspace=workspace.path,
                environment={**workspace.environment, **request.environment},
                readable=(*workspace.readable, *request.readable),
            )
            if self.equip is not None:
                request = await asyncio.to_thread(self.equip, request, workspace)

            async def take(session: Session) -> Proposal:
                return await asyncio.to_thread(self._take, opened, workspace, session)

            yield Workplace(request, take)

    @contextlib.asynccontextmanager
    async def checkout(self, opened: OpenAttempt) -> AsyncIterator[Checkout]:
        # The flow may plan again after a restart, but what was proposed stays as it was.
        base, commit = opened.finished[PROPOSED]["base"], opened.finished[PROPOSED]["commit"]
        async with check_out(self.repository, base, commit) as checkout:
            yield checkout

    async def keep(self, opened: OpenAttempt) -> tuple[Outcome, str]:
        return await asyncio.to_thread(self._advance, opened)

    async def discard(self, opened: OpenAttempt, failure: Failure | None) -> Mapping[str, Any]:
        return {}

    def end(self, tx: Transaction, opened: OpenAttempt, *, kept: bool) -> Mapping[str, Any]:
        if kept and opened.artifacts.travels:
            record_commit(tx, opened.artifacts, opened.run.id, self.ref, opened.finished[PROPOSED]["commit"])
        return {}

    def _take(self, opened: OpenAttempt, workspace: Workspace, session: Session) -> Proposal:
        made, ref = self._commit(opened, workspace, session)
        change = self.repository.diff(self.base, made.hash).encode("utf-8", "replace")
        data = {
            "base": self.base,
            "incumbent": self.incumbent or self.base,
            "workspace": {
                "kind": workspace.kind,
                "reason": workspace.reason,
                "own_commits": made.own_commits,
            },
        }
        travels = opened.artifacts.travels
        pack = self.repository.pack(made.hash, known=[self.base]) if travels else None
        return Proposal(made.hash, data, (Report(CHANGE_FILE, change, "text/x-diff"),), ref, pack)

    def _commit(self, opened: OpenAttempt, workspace: Workspace, session: Session) -> tuple[Commit, str]:
        """What the session made, under a ref of its own: the evidence stays, kept or not."""
        try:
            if self.finish is not None:
                self.finish(workspace.path, session)
            made = workspace.commit(self.message, author=self.author)
        except WorkspaceError as unfit:
            if isinstance(unfit, RefsMoved):
                self.repository.restore(unfit.moved)
            raise SessionFailed(Failure.BAD_OUTPUT, str(unfit), session=session, hint=unfit.hint) from unfit
        if not made.changed:
            raise SessionFailed(Failure.BAD_OUTPUT, "the session changed nothing", session=session)
        ref = f"refs/ratchet/attempts/{opened.id}"
        if self.repository.ref(ref) is not None:
            # Another ledger that works on this repository, or did before this one was made, has counted so far, too.
            ref = f"{ref}-{made.hash[:12]}"
        self.repository.advance(ref, made.hash, expected=None)
        return made, ref

    def _advance(self, opened: OpenAttempt) -> tuple[Outcome, str]:
        commit, incumbent = opened.finished[PROPOSED]["commit"], opened.finished[PROPOSED]["incumbent"]
        try:
            if (moved := self._moved(commit, incumbent)) is not None:
                return Outcome.FAILED, f"passed, but not kept: {moved}"
        except RepositoryUnwritable as error:
            if self.repository.ref(self.ref) != commit:
                raise
            # It has moved, and may not be on disk: the attempt resumes here, and does not end as if it had not.
            raise LedgerUnavailable(str(error), hint=error.hint) from error
        return Outcome.PASSED, opened.finished[JUDGED]["verdict"]["reason"]

    def _moved(self, commit: str, incumbent: str) -> StateChanged | None:
        """Move the ref to a commit, on disk; or how it was moved to something else meanwhile."""
        try:
            self.repository.advance(self.ref, commit, expected=incumbent)
        except StateChanged as moved:
            # By this very attempt, before its process died? Then it is kept.
            if not self.repository.is_ancestor(commit, self.ref):
                return moved
            self.repository.sync_ref(self.ref)
        return None


@contextlib.asynccontextmanager
async def check_out(repository: Repository, base: str, commit: str) -> AsyncIterator[Checkout]:
    """A commit for its judge, in a workspace that is made for it and removed afterwards."""
    async with _workspace(repository, commit) as workspace:
        yield Checkout(workspace.path, base, functools.partial(repository.diff, base, commit))


@contextlib.asynccontextmanager
async def _workspace(
    repository: Repository, commit: str, kind: WorkspaceKind | None = None
) -> AsyncIterator[Workspace]:
    workspace = await asyncio.to_thread(repository.workspace, commit, kind=kind)
    try:
        yield workspace
    finally:
        await asyncio.to_thread(workspace.discard)
