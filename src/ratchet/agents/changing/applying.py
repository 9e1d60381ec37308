"""Changing the live state of a version, while its servers use it."""

from __future__ import annotations

import json
from typing import Any

from ratchet.agentkit import AgentKitError, StateStore
from ratchet.agents.carrying import CannotCarry
from ratchet.agents.changing.proposed import Proposed
from ratchet.agents.changing.work import Work
from ratchet.agents.merging import Clash, merge
from ratchet.kernel import Misuse

_PAGE = 200
# Code of the agent holds the lock while it edits, and may never let go.
_PATIENCE_SECONDS = 60.0


def apply_state(work: Work, proposed: Proposed) -> None:
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


def read_state(work: Work, sha256: str | None) -> dict[str, Any]:
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
