"""The ground of planning: the branch of a protocol, made at the base of now and moved only from where it was put."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from ratchet.config.workflow_settings import Protocols
from ratchet.engines import Engine
from ratchet.kernel import Conflict, NotFound, RatchetError, StateChanged
from ratchet.ledger import EventFilter, Transaction
from ratchet.ledger.events import Event, latest
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol, change_protocol
from ratchet.ledger.questions import Clarification
from ratchet.ledger.runs import find_step
from ratchet.ledger.usage import stages_of_step
from ratchet.projects.assets import asset_files, commit_assets
from ratchet.projects.clone import Clone
from ratchet.projects.discovery import read_facts
from ratchet.protocols.stream import identity_of
from ratchet.question import QuestionAsker, Room, Tried
from ratchet.runtime import JobContext
from ratchet.runtime.attempts import ENDED
from ratchet.workspaces import Repository


class PlanFailed(RatchetError):
    """There is no plan. The message says why, and `problems` has one sentence for each thing that was wrong at last."""

    http_status = 502

    def __init__(self, message: str, *, hint: str | None = None, problems: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


class PlanBlocked(Conflict):
    """Nothing is planned before a person answers the `blockers`."""

    def __init__(self, blockers: Sequence[Clarification]) -> None:
        keys = tuple(each.key for each in blockers)
        super().__init__(
            f"planning waits for answers to: {', '.join(keys)}",
            hint="answer them; the protocol then resumes by itself",
        )
        self.blockers = tuple(blockers)
        self.keys = keys


OpenEngine = Callable[[str | None], Engine]
"""Opens an engine by its name; nothing is the usual one."""
Passed = Callable[[str], None]
"""Is called with its progress."""

PLAN_STEP = "plan"


@dataclass(frozen=True, slots=True)
class PlanningWork:
    """One protocol that is to be planned."""

    job: JobContext
    protocol: Protocol
    project: Project
    clone: Clone
    open_engine: OpenEngine
    passed: Passed

    @property
    def settings(self) -> Protocols:
        return self.job.runtime.settings.protocols

    @property
    def repository(self) -> Repository:
        return self.clone.repository

    @property
    def folder(self) -> str:
        return f".protocols/{self.protocol.name}"

    def model(self, stage: str) -> str | None:
        """The model for `planning` or `decompose`: the project's, then that of the settings, then the engine's own."""
        own = self.project.default_models.get(stage)
        chosen = own if isinstance(own, str) and own else getattr(self.settings.models, stage)
        return None if chosen is None else str(chosen)

    def asker(self, stage: str, engine: Engine, commit: str) -> QuestionAsker:
        """The engine works in a checkout of `commit`, and what it changes there is thrown away."""
        return QuestionAsker(
            self.job,
            engine,
            self.settings.repairs,
            model=self.model(stage),
            deadline_seconds=self.settings.session_seconds,
            room=lambda: self._room(commit),
            passed=self.passed,
        )

    @contextlib.asynccontextmanager
    async def _room(self, commit: str) -> AsyncIterator[Room]:
        workspace = await asyncio.to_thread(self.repository.workspace, commit, name="plan")
        try:
            yield Room(workspace.path, workspace.environment, tuple(workspace.readable))
        finally:
            await asyncio.to_thread(workspace.discard)


STARTED = "planning_started"
_ENTERED = "run.planning"
_MOST_STARTS = 200


@dataclass(frozen=True, slots=True)
class Begun:
    """Where a plan begins. `ground` is the base, or the base with the CI files on top, committed `at` that time.

    `first` is the number of the first attempt that counts: what failed before the protocol was started again does
    not, but `before`, the last bad answer, goes into the next prompt. `own` are the commits that the branch may
    be at and still be ours.
    """

    base: str
    ground: str
    at: int
    first: int
    before: Tried | None
    own: frozenset[str]


def begin(work: PlanningWork) -> Begun:
    """Settle where the plan begins. Asks the remote, so it may take its time. There is no branch before the plan.

    What a process settled that died in the middle stays. Raises `PlanFailed` for a branch that belongs to others, and
    whatever is wrong with the repository or its remote.
    """
    with work.job.ledger.read() as tx:
        past = _look_back(tx, work.protocol.run_id)
    begun = _remembered(past)
    if begun is None or not _bring_here(work, begun, required=past.has_plan):
        begun = _begin(work, past)
    return begun


def move_branch(work: PlanningWork, begun: Begun, commit: str) -> None:
    """Put the branch at `commit`, from nowhere or from a commit of this protocol. Fine if it is there."""
    repository, ref = work.repository, work.protocol.ref
    current = repository.ref(ref)
    if current == commit:
        return
    if current is not None and current not in begun.own:
        raise _taken(work, f"is at {current[:12]}, which this protocol did not make")
    try:
        repository.advance(ref, commit, expected=current)
    except StateChanged as changed:
        raise _taken(work, f"was moved meanwhile: {changed}") from changed


@dataclass(frozen=True, slots=True)
class _Past:
    """What has happened: when planning was entered last, where plans began, newest first, and what came of attempts."""

    entered: int
    starts: tuple[Event, ...]
    tried: tuple[Tried, ...]

    @property
    def has_plan(self) -> bool:
        return bool(self.tried) and not self.tried[-1].problems

    @property
    def own(self) -> frozenset[str]:
        return frozenset(each.data[name] for each in self.starts for name in ("base_commit", "ground"))


def _look_back(tx: Transaction, run_id: int) -> _Past:
    entered = latest(tx.connection, where=EventFilter(run_id=run_id, type=_ENTERED), limit=1)
    starts = latest(tx.connection, where=EventFilter(run_id=run_id, type=STARTED), limit=_MOST_STARTS)
    step = find_step(tx, run_id, PLAN_STEP)
    ended = [] if step is None else stages_of_step(tx, step.id, ENDED)
    return _Past(entered[0].id if entered else 0, tuple(starts), tuple(map(Tried.of, ended)))


def _remembered(past: _Past) -> Begun | None:
    """What was settled since planning was entered last; of an accepted plan, what it rests on."""
    if not past.starts or (past.entered > past.starts[0].id and not past.has_plan):
        return None
    data = past.starts[0].data
    earlier = data["earlier"]
    first = len(past.tried) if past.has_plan else earlier + 1
    before = _last_bad(past.tried[:earlier])
    return Begun(data["base_commit"], data["ground"], data["at"], first, before, past.own)


def _bring_here(work: PlanningWork, begun: Begun, *, required: bool) -> bool:
    """Have in this clone what was settled on another machine, or in a clone that is gone. Whether that worked.

    Raises `PlanFailed` when it did not although it is `required`.
    """
    if not _has(work, begun.base):
        work.clone.fetch(work.protocol.base_branch)
    if _has(work, begun.base) and not _has(work, begun.ground):
        _with_assets(work, begun.base, begun.at)
    here = _has(work, begun.base) and _has(work, begun.ground)
    if required and not here:
        raise PlanFailed(
            f"{work.clone.path} lacks {begun.ground[:12]}, which the accepted plan rests on",
            hint=f"restore that commit of {work.protocol.base_branch}, or make a new protocol",
        )
    return here


def _has(work: PlanningWork, commit: str) -> bool:
    try:
        return work.repository.resolve(commit) == commit
    except NotFound:
        return False


def _begin(work: PlanningWork, past: _Past) -> Begun:
    base = work.clone.fetch(work.protocol.base_branch)
    _require_room(work, base)
    _require_free(work, past.own)
    at = int(time.time())
    ground = _with_assets(work, base, at)
    earlier = len(past.tried)
    with work.job.write() as tx:
        change_protocol(tx, work.protocol.run_id, base_commit=base)
        tx.event(
            STARTED,
            run_id=work.protocol.run_id,
            project_id=work.project.id,
            message=f"{work.protocol.base_branch} is at {base[:12]}",
            data={"base_commit": base, "ground": ground, "at": at, "earlier": earlier},
        )
    work.passed("begun")
    return Begun(base, ground, at, earlier + 1, _last_bad(past.tried), past.own | {base, ground})


def _require_free(work: PlanningWork, own: frozenset[str]) -> None:
    """No other branch may have that name, here or at the remote."""
    name = work.protocol.name
    here = work.repository.ref(work.protocol.ref)
    if here is not None and here not in own:
        raise _taken(work, f"exists already, at {here[:12]}")
    if work.clone.origin is None or name not in work.clone.remote_branches():
        return
    there = work.clone.fetch(name)
    if there not in own:
        raise PlanFailed(
            f"the branch {name} exists already at {work.clone.origin}, at {there[:12]}",
            hint=f"delete it there if it is not needed, or make the protocol under another name than {name}",
        )


def _taken(work: PlanningWork, why: str) -> PlanFailed:
    name = work.protocol.name
    return PlanFailed(
        f"the branch {name} in {work.clone.path} {why}",
        hint=f"rename or delete it (`git branch -m {name} …`), or make the protocol under another name",
    )


def _require_room(work: PlanningWork, base: str) -> None:
    """The folder of the protocol must be new: what a plan says is never mixed with what another one said."""
    for path in work.repository.list_files(base):
        if path == work.folder or path.startswith(f"{work.folder}/") or work.folder.startswith(f"{path}/"):
            raise PlanFailed(
                f"{work.protocol.base_branch} has {path} already, so no new plan can be put at {work.folder}",
                hint="make the protocol under another name, or remove that from the base branch",
            )


def _with_assets(work: PlanningWork, base: str, at: int) -> str:
    """The base, with CI files on top if they were asked for and the repository has none of them."""
    if not work.project.facts.get("ci_files"):
        return base
    facts = read_facts(work.project.facts)
    provider = work.project.ci_provider or facts.ci_provider
    there = work.repository.list_files(base)
    if any(path in there for path in asset_files(facts, provider)):
        return base
    author = identity_of(work.project)
    return commit_assets(work.repository, base, facts, provider, author=author, at=at) or base


def _last_bad(tried: tuple[Tried, ...]) -> Tried | None:
    """The last answer that could not be used; what failed for another reason says nothing."""
    return tried[-1] if tried and tried[-1].answer else None
