"""The versions of an agent as what an attempt moves forward: a copy is changed, checked, and serves from then on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ratchet.agents.carrying import CannotCarry
from ratchet.agents.changing.applying import apply_state
from ratchet.agents.changing.proposed import Proposed
from ratchet.agents.changing.publishing import NewVersion, make_version, place_version
from ratchet.agents.changing.staging import last_change, prepare, set_aside, stage
from ratchet.agents.changing.taking import Decision, take
from ratchet.agents.changing.work import Work
from ratchet.agents.trees import git_files
from ratchet.engines import Failure, Request, Session
from ratchet.judges import Report
from ratchet.kernel import Outcome, StateChanged, with_hint
from ratchet.ledger import Transaction
from ratchet.ledger.agents import AgentStatus, add_version, end_creation, get_agent, move_current
from ratchet.loop import Checkout, OpenAttempt, Proposal, Workplace
from ratchet.workspaces.removal import remove_tree


@dataclass(slots=True)
class AgentTrunk:
    """One change of one agent. Nothing that serves is touched before the very end, and that end is one transaction."""

    work: Work
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
        work, proposed = self.work, Proposed.of(opened)
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
        work, proposed = self.work, Proposed.of(opened)
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
        work, proposed, made = self.work, Proposed.of(opened), self._made
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


def _promote(tx: Transaction, work: Work, proposed: Proposed, made: NewVersion) -> bool:
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
