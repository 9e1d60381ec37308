"""From a change that passed its checks to a version that serves: number, commit, push, place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.agentkit import StateStore
from ratchet.agents.carrying import carried_state
from ratchet.agents.changing.applying import read_state
from ratchet.agents.changing.proposed import Proposed
from ratchet.agents.changing.staging import stage
from ratchet.agents.changing.work import Work
from ratchet.agents.contract import CUT, FIRST_VERSION, METADATA, ToolShape
from ratchet.agents.signatures import compare_tools, shapes_of
from ratchet.agents.tags import tag_for
from ratchet.agents.trees import commit_tree, sync_tree
from ratchet.kernel.semver import Bump, bumped
from ratchet.loop import JUDGED, OpenAttempt


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version that has passed its checks. `tools` are those of its Runner."""

    commit: str
    version: str
    tools: list[Any]


def make_version(work: Work, opened: OpenAttempt, proposed: Proposed) -> NewVersion:
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


def _number(work: Work, proposed: Proposed, tools: Sequence[ToolShape]) -> str:
    """The engine proposes; a tool that is gone or has another signature forces more."""
    if work.base is None:
        return FIRST_VERSION
    least = compare_tools(shapes_of(work.base.tools), tools).least
    wanted = Bump(proposed.bump) if proposed.bump else Bump.PATCH
    return bumped(work.base.version, max(least, wanted))


async def place_version(work: Work, proposed: Proposed, made: NewVersion) -> None:
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


async def _give_state(work: Work, proposed: Proposed, staging: Path) -> None:
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


def _push(work: Work, made: NewVersion) -> None:
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


def _point(work: Work, ref: str, commit: str) -> None:
    now = work.repository.ref(ref)
    if now != commit:
        work.repository.advance(ref, commit, expected=now)
