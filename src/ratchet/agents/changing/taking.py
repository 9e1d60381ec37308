"""Taking what a session left in the staging directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ratchet.agentkit.values import MOST_BYTES
from ratchet.agents.changing.work import Work
from ratchet.agents.contract import STATE
from ratchet.agents.trees import Unfit, commit_tree, git_files, read_tree
from ratchet.engines import Failure, Session, SessionFailed

# As laid out for people, a state may take twice what it may have.
_MOST_STATE_BYTES = 2 * MOST_BYTES


class Decision(StrEnum):
    """What a change is about."""

    NOTHING = "nothing"
    STATE = "state"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Taken:
    """`commit` is there for a change of code only."""

    decision: Decision
    summary: str
    commit: str | None
    state: bytes
    answer: Mapping[str, Any]


def take(
    work: Work,
    attempt_id: int,
    staging: Path,
    session: Session,
    guarded: Mapping[str, bytes | None],
    before: bytes | None,
) -> Taken:
    """What the session left, under a ref of its own. Raises `SessionFailed` for what cannot be taken."""
    answer = session.output if isinstance(session.output, dict) else {}
    if refused := answer.get("refused"):
        raise SessionFailed(
            Failure.REFUSED, f"the engine refused: {refused}", session=session, hint="ask for something else"
        )
    try:
        if git_files(staging) != guarded:
            raise Unfit("the session changed .git", hint="leave .git alone: the Architect commits")
        files = read_tree(staging)
        state = _state(staging)
        decision = _decision(work, files, state, before, answer)
        summary = str(answer.get("summary") or session.text or decision)[:2000].strip() or str(decision)
        commit = None
        if decision is Decision.CODE:
            commit = commit_tree(work.repository, files, parent=work.parent, message=summary)
            work.repository.advance(f"refs/ratchet/attempts/{attempt_id}", commit, expected=None)
        return Taken(decision, summary, commit, state, answer)
    except Unfit as unfit:
        raise SessionFailed(Failure.BAD_OUTPUT, str(unfit), session=session, hint=unfit.hint) from unfit


def _state(staging: Path) -> bytes:
    path = staging / STATE
    if path.is_symlink() or not path.is_file():
        raise Unfit(f"there is no {STATE}", hint=f"leave {STATE} in its place, valid under its schema")
    if path.stat().st_size > _MOST_STATE_BYTES:
        raise Unfit(
            f"{STATE} has more than {_MOST_STATE_BYTES} bytes", hint="keep what was learned, not data"
        )
    return path.read_bytes()


def _decision(
    work: Work,
    files: Mapping[str, bytes],
    state: bytes,
    before: bytes | None,
    answer: Mapping[str, Any],
) -> Decision:
    """What was really changed decides; an answer that says otherwise is a mistake."""
    if work.parent is None:
        return Decision.CODE
    known = {
        path: work.repository.read_file(work.parent, path) for path in work.repository.list_files(work.parent)
    }
    found = Decision.NOTHING if _same(state, before) else Decision.STATE
    if dict(files) != known:
        found = Decision.CODE
    said = answer.get("decision")
    if said is not None and said != found and not (said == Decision.CODE and found is Decision.STATE):
        raise Unfit(
            f"the session said {said!r}, but what it changed is {str(found)!r}",
            hint="change what you say you change, and nothing else",
        )
    return found


def _same(state: bytes, before: bytes | None) -> bool:
    try:
        return before is not None and bool(json.loads(state) == json.loads(before))
    except (ValueError, RecursionError):
        return False
