"""An agent's versions as the trunk of an attempt: a change that passed gets its number, commit, state and address."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ratchet.agentkit import AgentKitError, StateStore
from ratchet.agents.approval import (
    ALWAYS,
    NEVER,
    ApprovalPending,
    ask_for_approval,
    mode_of,
    refusal_of,
    state_diff,
)
from ratchet.agents.checks.evals import EvalCase, check_evals, hash_of
from ratchet.agents.checks.files import NotPassed, take_snapshot
from ratchet.agents.checks.losses import compare_states
from ratchet.agents.checks.replay import AskedChanges, worth_replaying
from ratchet.agents.checks.version import Used, check_version
from ratchet.agents.contract import FIRST_VERSION, METADATA, STATE
from ratchet.agents.learning import case_of, keep_lesson
from ratchet.agents.staging_area import (
    ArchitectWork,
    Decision,
    attempt_ref,
    commit_tree,
    git_files,
    last_change,
    prepare,
    set_aside,
    stage,
    sync_tree,
    take,
)
from ratchet.agents.state import CannotCarry, Clash, carried_state, check_fits, has_migration, merge, same
from ratchet.agents.stores import AgentStates, Succession, check_losses
from ratchet.agents.versions import tag_for
from ratchet.engines import Failure, Request, Session
from ratchet.judges import Report
from ratchet.judges.scratch import in_thread, scratch
from ratchet.kernel import Misuse, Outcome, StateChanged, exact_bytes, with_hint
from ratchet.kernel.semver import Bump, bumped
from ratchet.ledger import Transaction
from ratchet.ledger.agents import AgentStatus, add_version, end_creation, get_agent, move_current
from ratchet.ledger.evals import list_calls, list_evals
from ratchet.ledger.questions import Approval
from ratchet.ledger.usage import total
from ratchet.loop import JUDGED, PROPOSED, Checkout, OpenAttempt, Proposal, Workplace
from ratchet.workspaces.directories import remove_tree
from ratchet.workspaces.packs import record_commit


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version that has passed its checks. `tools` are those of its Runner, `offers` what else callers see."""

    commit: str
    version: str
    tools: list[Any]
    offers: list[Any]
    diff_sha256: str
    pack: bytes | None = field(default=None, repr=False)
    """What the commit adds to what is recorded of the agent, where commits travel."""


def make_version(work: ArchitectWork, opened: OpenAttempt, proposed: ProposedChange) -> NewVersion:
    """The commit of the version: the files that were checked, with their number. Made again, it is the same one."""
    assert proposed.commit is not None
    found = opened.finished[JUDGED]["found"]
    tools, offers = found["tools"], found.get("offers", [])
    version = _number(work, proposed, Bump(found.get("least", Bump.PATCH)))
    files = {
        path: work.repository.read_file(proposed.commit, path)
        for path in work.repository.list_files(proposed.commit)
    }
    files[METADATA] = json.dumps({"version": version}, indent=2).encode() + b"\n"
    [entry] = work.repository.log(proposed.commit, limit=1)
    message = f"{proposed.summary}\n\nVersion: {version}\nRun: {work.run.id}\n"
    commit = commit_tree(work.repository, files, parent=work.parent, message=message, at=entry.at)
    diff = "" if work.parent is None else work.repository.diff(work.parent, commit)
    digest = hashlib.sha256(exact_bytes(diff)).hexdigest()
    known = [proposed.commit, *([] if work.parent is None else [work.parent])]
    pack = work.repository.pack(commit, known=known) if opened.artifacts.travels else None
    return NewVersion(commit, version, tools, offers, digest, pack)


def _number(work: ArchitectWork, proposed: ProposedChange, least: Bump) -> str:
    """The engine proposes; the judge has found how far it must move at least."""
    if work.base is None:
        return FIRST_VERSION
    wanted = Bump(proposed.bump) if proposed.bump else Bump.PATCH
    return bumped(work.base.version, max(least, wanted))


async def place_version(
    work: ArchitectWork, proposed: ProposedChange, made: NewVersion, *, may_lose: bool = False
) -> None:
    """Give the version the state that its predecessor has now, push its commit and put its directory in place.

    Each part is done again without harm when a process died in the middle. Raises `CannotCarry`, also for a state that
    would lose something unless it `may_lose` it.
    """
    target, staging = work.place.version(made.commit), work.place.staging(work.parent)
    is_placed = target.is_dir()
    if not is_placed:
        await asyncio.to_thread(stage, work, staging, made.commit, None)
        await _give_state(work, proposed, made, staging, may_lose=may_lose)
        await asyncio.to_thread(sync_tree, staging)
    # Not before there is a state for it: what is refused must not be the head of a branch.
    await asyncio.to_thread(_push, work, made)
    work.passed("pushed")
    if not is_placed:
        staging.rename(target)
    work.passed("placed")


async def _give_state(
    work: ArchitectWork, proposed: ProposedChange, made: NewVersion, staging: Path, *, may_lose: bool
) -> None:
    """Have the version work on the state that there is; or on one of its own, where it wants another form of it."""
    states, staged = AgentStates(work.place), read_state(work, proposed.staged_state)
    if work.parent is None:
        await asyncio.to_thread(states.begin, staging, made.commit, staged, work.by)
        states.make_live(made.commit)
        return
    await asyncio.to_thread(states.adopt, work.parent, work.agent.current)
    base, parent = read_state(work, proposed.base_state), work.place.version(work.parent)
    live = await asyncio.to_thread(StateStore(parent).read)
    edited = not same(base, staged)
    carried = await carried_state(staging, work.settings, base=base, staged=staged, live=live, parent=parent)
    if not may_lose:
        check_losses(live, carried, edited=edited)
    shared = states.store_of(work.parent)
    if shared is not None and await _fits_both(staging, parent, carried, edited=edited):
        if edited:
            await asyncio.to_thread(apply_state, work, proposed)
        states.lead(staging, shared)
        return
    # Another form is made again, of the state as it is then, in the moment in which the version takes over.
    await asyncio.to_thread(states.begin, staging, made.commit, carried, work.by)
    if shared is not None:
        kept = (base, staged) if edited else (None, None)
        planned = Succession(
            store=shared, parent=work.parent, base=kept[0], staged=kept[1], may_lose=may_lose
        )
        states.plan(made.commit, planned)


async def _fits_both(staging: Path, parent: Path, carried: dict[str, Any], *, edited: bool) -> bool:
    """Whether the version before can work with the state of the new one."""
    if has_migration(staging, parent):
        return False
    if edited:
        try:
            await check_fits(carried, parent, "the changed state", "")
        except CannotCarry:
            return False
    return True


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


def used_of(work: ArchitectWork) -> Used:
    """What its user has on record of an agent: evals, and calls that were made."""
    if work.base is None:
        return Used()
    most = work.settings.replay_calls
    with work.job.ledger.read() as tx:
        evals = list_evals(tx, work.agent.id)
        # Of each tool, since one that is called all the time would leave no room for the others.
        tools = [
            each["name"].removeprefix("tuner ") for each in (*work.base.tools, *(work.base.offers or ()))
        ]
        calls = [
            call
            for tool in dict.fromkeys(tools[:_MOST_TOOLS] if most else ())
            for call in list_calls(tx, work.agent.id, tool=tool, limit=_LOOKED_AT)
        ]
    fixed = case_of(work.spec)
    asked = AskedChanges(
        tools=frozenset(work.spec.get("about", ())),
        call=(fixed[0].tool, fixed[0].arguments) if fixed else None,
    )
    return Used((*map(EvalCase.of, evals), *fixed), worth_replaying(calls, most), asked)


# Recorded calls of a tool among which those to be made again are looked for, and for how many tools.
_LOOKED_AT, _MOST_TOOLS = 100, 100


@dataclass(slots=True)
class AgentTrunk:
    """One change of one agent. Nothing that serves is touched before the very end, and that end is one transaction."""

    work: ArchitectWork
    _made: NewVersion | None = field(default=None, init=False)
    """The version that was put in place just now."""
    _approval: Approval | None = field(default=None, init=False)
    """What a person decided about it."""
    shown_state: dict[str, Any] | None = field(default=None, init=False)
    """The live state as the engine was shown it, of a change that is judged."""

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
            files = (staged,) if base is None else (base, staged)
            pack = None
            if made.commit is not None and opened.artifacts.travels:
                known = [] if work.parent is None else [work.parent]
                pack = await asyncio.to_thread(work.repository.pack, made.commit, known=known)
            return Proposal(made.commit, data, files, attempt_ref(opened.id), pack)

        yield Workplace(replace(request, workspace=staging), take_change)

    @contextlib.asynccontextmanager
    async def checkout(self, opened: OpenAttempt) -> AsyncIterator[Checkout]:
        """In the staging directory, which is made again: what does not pass is set aside from there."""
        work, proposed = self.work, ProposedChange.of(opened)
        assert proposed.commit is not None
        state = opened.artifacts.read(proposed.staged_state)
        if proposed.base_state is not None:
            self.shown_state = await asyncio.to_thread(read_state, work, proposed.base_state)
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
            refusal = await asyncio.to_thread(self._refusal, opened, proposed) or await self._unmet(
                opened, proposed
            )
            if refusal is not None:
                return Outcome.FAILED, refusal
            match proposed.decision:
                case Decision.STATE:
                    await self._check_state(proposed)
                    apply_state(work, proposed)
                    work.passed("state changed")
                case Decision.CODE:
                    self._made = await asyncio.to_thread(make_version, work, opened, proposed)
                    work.passed("checked")
                    may_lose = bool(opened.finished[JUDGED]["found"].get("loses_state"))
                    await place_version(work, proposed, self._made, may_lose=may_lose)
        except CannotCarry as problem:
            return Outcome.FAILED, with_hint(problem)
        except NotPassed as problem:
            return Outcome.FAILED, f"evals: {problem}"
        remove_tree(work.place.staging(work.parent))
        return Outcome.PASSED, proposed.summary

    def _refusal(self, opened: OpenAttempt, proposed: ProposedChange) -> str | None:
        """Why a person keeps the change from being made, if one is to be asked; None if it may be made.

        Raises `ApprovalPending` while no answer is there.
        """
        work = self.work
        mode = mode_of(work.agent, work.job.runtime.settings)
        if proposed.decision is Decision.NOTHING:
            return None
        findings, diff = self._findings(opened, proposed)
        if findings and mode == NEVER:
            return f"{'; '.join(findings)}, and no person is asked (agents.approval is never)"
        if not findings and mode != ALWAYS:
            return None
        try:
            self._approval = ask_for_approval(work, opened, findings, summary=proposed.summary, diff=diff)
        except ApprovalPending:
            work.passed("asked")
            raise
        return refusal_of(self._approval)

    async def _unmet(self, opened: OpenAttempt, proposed: ProposedChange) -> str | None:
        """What is wrong by evals that were changed since the change was judged; it may have waited for long."""
        work, used = self.work, used_of(self.work)
        judged = opened.finished.get(JUDGED)
        if judged is None or judged["found"].get("evals") in (None, hash_of(used.evals)):
            return None
        base = None if work.parent is None else work.place.version(work.parent)
        async with self.checkout(opened) as checkout:
            checked = await check_version(
                checkout.directory,
                work.settings,
                agent=work.agent.name,
                base=base,
                asks=True,
                used=Used(used.evals),
            )
        verdict = checked.judged.verdict
        return None if verdict.passed else f"by the evals as they are now: {verdict.reason}"

    async def _check_state(self, proposed: ProposedChange) -> None:
        """Have the changed state answer the evals, the call of an incident among them. Raises `NotPassed`."""
        work, cases = self.work, used_of(self.work).evals
        if not cases or work.parent is None:
            return
        async with scratch() as place:
            source = work.place.version(work.parent)
            snapshot = await in_thread(lambda: take_snapshot(source, place / "version"))
            state = work.job.ledger.artifacts.read(proposed.staged_state)
            (snapshot.directory / STATE).write_bytes(state)
            await check_evals(
                snapshot.directory, place / "running", cases, work.settings, {}, agent=work.agent.name
            )

    def _findings(self, opened: OpenAttempt, proposed: ProposedChange) -> tuple[list[str], str]:
        """What a person would have to approve of a change, and what it changes."""
        work = self.work
        if proposed.decision is Decision.CODE:
            assert proposed.commit is not None
            findings = opened.finished[JUDGED]["found"].get("findings", [])
            return findings, "" if work.parent is None else work.repository.diff(work.parent, proposed.commit)
        before, after = read_state(work, proposed.base_state), read_state(work, proposed.staged_state)
        problem = compare_states(before, after, edited=True).problem
        return [] if problem is None else [f"the change of the state {problem}"], state_diff(before, after)

    async def discard(self, opened: OpenAttempt, failure: Failure | None) -> Mapping[str, Any]:
        """Set aside what a try left, for people to look at."""
        if failure is Failure.MISSING:
            # No engine was there that could have made anything.
            remove_tree(self.work.place.staging(self.work.parent))
        return {"quarantine": await asyncio.to_thread(set_aside, self.work, opened.id)}

    def _certificate(
        self, tx: Transaction, opened: OpenAttempt, proposed: ProposedChange, made: NewVersion
    ) -> dict[str, Any]:
        """What the version is promoted on: who proposed it, who judged it by what, and what it cost."""
        work, approval = self.work, self._approval
        judged, session = opened.finished[JUDGED], opened.finished[PROPOSED].get("session", {})
        verdict, found = judged["verdict"], judged["found"]
        return {
            "parent": work.parent,
            "diff_sha256": made.diff_sha256,
            "proposed_by": {
                "run": work.run.id,
                "attempt": opened.id,
                "session": session.get("id"),
                "engine": session.get("engine"),
                "model": session.get("model"),
                "asked_by": work.spec.get("source") or work.spec["action"],
                "incident": (work.spec.get("incident") or {}).get("id"),
            },
            "judges": [{key: verdict[key] for key in ("judge", "judge_hash", "outcome", "reason", "report")}],
            "evals_sha256": found.get("evals"),
            **found.get("evidence", {}),
            "findings": list(found.get("findings", ())),
            "approval": None
            if approval is None
            else {
                "approval": approval.id,
                "by": approval.decided_by,
                "at": approval.decided_at,
                "comment": approval.comment,
            },
            "cost": asdict(total(tx, "attempt", opened.id)),
            "simulated": proposed.simulated,
        }

    def end(self, tx: Transaction, opened: OpenAttempt, *, kept: bool) -> Mapping[str, Any]:
        nothing = {"decision": None, "commit": None, "version": None, "summary": "", "promoted": False}
        if not kept:
            refused = self._approval is not None and refusal_of(self._approval) is not None
            by = self._approval.decided_by if self._approval is not None and refused else None
            return {**nothing, "refused_by": by}
        work, proposed, made = self.work, ProposedChange.of(opened), self._made
        if proposed.decision is Decision.STATE:
            data = {"agent": work.agent.name, "commit": work.parent, "summary": proposed.summary}
            tx.event("agent.state", message=proposed.summary, run_id=work.run.id, data=data)
            keep_lesson(tx, work.agent, work.run.id)
        ended = {
            **nothing,
            "decision": "created" if work.base is None else str(proposed.decision),
            "summary": proposed.summary,
        }
        if made is None:
            return ended
        if made.pack is not None:
            ref = f"refs/versions/{made.commit}"
            record_commit(tx, opened.artifacts, work.run.id, ref, made.commit, made.pack)
        certificate = self._certificate(tx, opened, proposed, made)
        promoted = _promote(tx, work, proposed, made, certificate)
        return {**ended, "commit": made.commit, "version": made.version, "promoted": promoted}


def _promote(
    tx: Transaction,
    work: ArchitectWork,
    proposed: ProposedChange,
    made: NewVersion,
    certificate: Mapping[str, Any],
) -> bool:
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
        offers=made.offers,
        certificate=certificate,
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
    keep_lesson(tx, agent, work.run.id)
    return True
