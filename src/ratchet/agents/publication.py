"""An agent's versions as the trunk of an attempt: a change that passed gets its number, commit, state and address."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ratchet.agentkit import AgentKitError, StateStore
from ratchet.agents.contract import CUT, FIRST_VERSION, METADATA, ToolShape
from ratchet.agents.staging_area import (
    ArchitectWork,
    Decision,
    commit_tree,
    git_files,
    last_change,
    prepare,
    set_aside,
    stage,
    sync_tree,
    take,
)
from ratchet.agents.state import CannotCarry, Clash, carried_state, merge
from ratchet.agents.versions import compare_tools, shapes_of, tag_for
from ratchet.engines import Failure, Request, Session
from ratchet.judges import Report
from ratchet.kernel import Misuse, Outcome, StateChanged, with_hint
from ratchet.kernel.semver import Bump, bumped
from ratchet.ledger import Transaction
from ratchet.ledger.agents import AgentStatus, add_version, end_creation, get_agent, move_current
from ratchet.loop import JUDGED, PROPOSED, Checkout, OpenAttempt, Proposal, Workplace
from ratchet.workspaces.directories import remove_tree


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version that has passed its checks. `tools` are those of its Runner."""

    commit: str
    version: str
    tools: list[Any]


def make_version(work: ArchitectWork, opened: OpenAttempt, proposed: ProposedChange) -> NewVersion:
    """The commit of the version: the files that were checked, with their number. Made again, it is the same one."""
    assert proposed.commit is not None
    tools = opened.finished[JUDGED]["found"]["tools"]
    version = _number(work, proposed, shapes_of(tools))
    files = {
        path: work.repository.read_file(proposed.commit, path)
        for path in work.repository.list_files(proposed.commit)
    }
    files[METADATA] = json.dumps({"version": version}, indent=2).encode() + b"\n"
    [entry] = work.repository.log(proposed.commit, limit=1)
    message = f"{proposed.summary}\n\nVersion: {version}\nRun: {work.run.id}\n"
    commit = commit_tree(work.repository, files, parent=work.parent, message=message, at=entry.at)
    return NewVersion(commit, version, tools)


def _number(work: ArchitectWork, proposed: ProposedChange, tools: Sequence[ToolShape]) -> str:
    """The engine proposes; a tool that is gone or has another signature forces more."""
    if work.base is None:
        return FIRST_VERSION
    least = compare_tools(shapes_of(work.base.tools), tools).least
    wanted = Bump(proposed.bump) if proposed.bump else Bump.PATCH
    return bumped(work.base.version, max(least, wanted))


async def place_version(work: ArchitectWork, proposed: ProposedChange, made: NewVersion) -> None:
    """Give the version the state that its predecessor has now, push its commit and put its directory in place.

    Each part is done again without harm when a process died in the middle. Raises `CannotCarry`.
    """
    target, staging = work.place.version(made.commit), work.place.staging(work.parent)
    is_placed = target.is_dir()
    if not is_placed:
        await asyncio.to_thread(stage, work, staging, made.commit, None)
        await _give_state(work, proposed, staging)
        await asyncio.to_thread(sync_tree, staging)
    # Not before there is a state for it: what is refused must not be the head of a branch.
    await asyncio.to_thread(_push, work, made)
    work.passed("pushed")
    if not is_placed:
        staging.rename(target)
    work.passed("placed")


async def _give_state(work: ArchitectWork, proposed: ProposedChange, staging: Path) -> None:
    staged = read_state(work, proposed.staged_state)
    if work.parent is None:
        StateStore(staging).begin(staged, by=work.by)
        return
    base = read_state(work, proposed.base_state)
    live = StateStore(work.place.version(work.parent)).read()
    parent = work.place.version(work.parent)
    carried = await carried_state(
        staging, work.job.runtime.settings, base=base, staged=staged, live=live, parent=parent
    )
    StateStore(staging).begin(carried, by=work.by)
    # What the older version still writes, until it is drained, is what differs from this.
    (staging / CUT).write_text(json.dumps({"from": work.parent, "state": live}, ensure_ascii=False))


def _push(work: ArchitectWork, made: NewVersion) -> None:
    """The branch that the agent's address follows, or one of the variant's own, and the tag of the version."""
    refs = [f"refs/versions/{made.commit}"]
    if work.agent.current == work.parent:
        _point(work, "refs/heads/main", made.commit)
    else:
        refs.append(f"refs/heads/variant-{made.commit[:12]}")
    with work.job.ledger.read() as tx:
        refs.append(f"refs/tags/{tag_for(tx, work.agent.id, made.version, made.commit)}")
    for ref in refs:
        _point(work, ref, made.commit)


def _point(work: ArchitectWork, ref: str, commit: str) -> None:
    now = work.repository.ref(ref)
    if now != commit:
        work.repository.advance(ref, commit, expected=now)


_PAGE = 200
# Code of the agent holds the lock while it edits, and may never let go.
_PATIENCE_SECONDS = 60.0


def apply_state(work: ArchitectWork, proposed: ProposedChange) -> None:
    """Bring what the session changed into the state as it is now, under its lock and its schema. Done once only.

    Raises `CannotCarry` when the state has changed in the same places meanwhile, or would not fit its schema.
    """
    assert work.parent is not None
    store = StateStore(work.place.version(work.parent), patience=_PATIENCE_SECONDS)
    base, staged = read_state(work, proposed.base_state), read_state(work, proposed.staged_state)
    if _is_applied(store, work.by, proposed.seen):
        return
    try:
        with store.edit(by=work.by) as live:
            merged = merge(base, dict(live), staged)
            live.clear()
            live.update(merged)
    except Clash as clash:
        raise CannotCarry(
            f"the state was changed meanwhile in the same places: {', '.join(clash.paths)}",
            hint="give the feedback again",
        ) from clash
    except (AgentKitError, Misuse) as error:
        raise CannotCarry(f"the changed state cannot be used: {error}") from error


def _is_applied(store: StateStore, by: str, seen: int) -> bool:
    """Whether a process that died has made this change already: some time after the session had seen the state."""
    before = None
    while changes := store.history(limit=_PAGE, before=before):
        if any(change.by == by for change in changes):
            return True
        before = changes[-1].number
        if before <= seen:
            return False
    return False


def read_state(work: ArchitectWork, sha256: str | None) -> dict[str, Any]:
    """A state from the artifact store. Raises `CannotCarry` when it is none."""
    content = b"" if sha256 is None else work.job.ledger.artifacts.read(sha256)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CannotCarry(
            f"state.json is not JSON: {error}", hint="leave state.json a JSON object"
        ) from error
    if not isinstance(found, dict):
        raise CannotCarry("state.json is not an object", hint="leave state.json a JSON object")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedChange:
    """What a session came to. `commit` holds the files that it left, the states lie in the artifact store.

    `base_state` is the live state as the session was shown it; the first version has none. `seen` is the number of a
    change that is part of it.
    """

    decision: Decision
    bump: str | None
    summary: str
    commit: str | None
    base_state: str | None
    staged_state: str
    simulated: bool
    seen: int = 0

    @classmethod
    def of(cls, opened: OpenAttempt) -> ProposedChange:
        data = opened.finished[PROPOSED]
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        return cls(**{**known, "decision": Decision(data["decision"])})


@dataclass(slots=True)
class AgentTrunk:
    """One change of one agent. Nothing that serves is touched before the very end, and that end is one transaction."""

    work: ArchitectWork
    _made: NewVersion | None = field(default=None, init=False)
    """The version that was put in place just now."""

    @contextlib.asynccontextmanager
    async def workplace(self, opened: OpenAttempt, request: Request) -> AsyncIterator[Workplace]:
        work = self.work
        work.passed("session")
        staging = work.place.staging(work.parent)
        seen = await asyncio.to_thread(last_change, work)
        before = await asyncio.to_thread(prepare, work, staging)
        guarded = git_files(staging)

        async def take_change(session: Session) -> Proposal:
            made = await asyncio.to_thread(take, work, opened.id, staging, session, guarded, before)
            work.passed("session ended")
            base = None if before is None else Report("base-state.json", before)
            staged = Report("staged-state.json", made.state)
            data = {
                "incumbent": work.parent,
                "decision": made.decision,
                "bump": made.answer.get("bump"),
                "summary": made.summary,
                "base_state": None if base is None else base.sha256,
                "staged_state": staged.sha256,
                "seen": seen,
            }
            return Proposal(made.commit, data, (staged,) if base is None else (base, staged))

        yield Workplace(replace(request, workspace=staging), take_change)

    @contextlib.asynccontextmanager
    async def checkout(self, opened: OpenAttempt) -> AsyncIterator[Checkout]:
        """In the staging directory, which is made again: what does not pass is set aside from there."""
        work, proposed = self.work, ProposedChange.of(opened)
        assert proposed.commit is not None
        state = opened.artifacts.read(proposed.staged_state)
        staging = work.place.staging(work.parent)
        await asyncio.to_thread(stage, work, staging, proposed.commit, state)
        work.passed("checking")
        if work.parent is None:
            yield Checkout(staging, "")
        else:
            diff = functools.partial(work.repository.diff, work.parent, proposed.commit)
            yield Checkout(staging, work.parent, diff)

    async def keep(self, opened: OpenAttempt) -> tuple[Outcome, str]:
        work, proposed = self.work, ProposedChange.of(opened)
        try:
            match proposed.decision:
                case Decision.STATE:
                    apply_state(work, proposed)
                    work.passed("state changed")
                case Decision.CODE:
                    self._made = await asyncio.to_thread(make_version, work, opened, proposed)
                    work.passed("checked")
                    await place_version(work, proposed, self._made)
        except CannotCarry as problem:
            return Outcome.FAILED, with_hint(problem)
        remove_tree(work.place.staging(work.parent))
        return Outcome.PASSED, proposed.summary

    async def discard(self, opened: OpenAttempt, failure: Failure | None) -> Mapping[str, Any]:
        """Set aside what a try left, for people to look at."""
        if failure is Failure.MISSING:
            # No engine was there that could have made anything.
            remove_tree(self.work.place.staging(self.work.parent))
        return {"quarantine": await asyncio.to_thread(set_aside, self.work, opened.id)}

    def end(self, tx: Transaction, opened: OpenAttempt, *, kept: bool) -> Mapping[str, Any]:
        nothing = {"decision": None, "commit": None, "version": None, "summary": "", "promoted": False}
        if not kept:
            return nothing
        work, proposed, made = self.work, ProposedChange.of(opened), self._made
        if proposed.decision is Decision.STATE:
            data = {"agent": work.agent.name, "commit": work.parent, "summary": proposed.summary}
            tx.event("agent.state", message=proposed.summary, run_id=work.run.id, data=data)
        ended = {
            **nothing,
            "decision": "created" if work.base is None else str(proposed.decision),
            "summary": proposed.summary,
        }
        if made is None:
            return ended
        promoted = _promote(tx, work, proposed, made)
        return {**ended, "commit": made.commit, "version": made.version, "promoted": promoted}


def _promote(tx: Transaction, work: ArchitectWork, proposed: ProposedChange, made: NewVersion) -> bool:
    """Record the version, and let the address lead to it unless it is pinned or was moved meanwhile."""
    agent = get_agent(tx, work.agent.name)
    add_version(
        tx,
        agent,
        made.commit,
        made.version,
        parent=work.parent,
        summary=proposed.summary,
        tools=made.tools,
        run_id=work.run.id,
        simulated=proposed.simulated,
    )
    if agent.status is AgentStatus.CREATING:
        end_creation(tx, agent.id, run_id=work.run.id)
    if agent.pinned or agent.current != work.parent:
        return False
    try:
        move_current(
            tx,
            agent,
            made.commit,
            expected=work.parent,
            why="promoted",
            reason=proposed.summary,
            run_id=work.run.id,
        )
    except StateChanged:
        return False
    return True
