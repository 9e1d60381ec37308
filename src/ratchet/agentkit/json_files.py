"""The files in which a state lay before it lay in SQLite, read once: `state.json` and `state.history.jsonl`.

`state.json` is also how a new agent brings the state that it begins with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ratchet.agentkit.database import Change
from ratchet.agentkit.errors import StateDamaged, StateInvalid
from ratchet.agentkit.files import opened, read_whole
from ratchet.agentkit.values import Step, follow, parsed

STATE = "state.json"
HISTORY = "state.history.jsonl"
_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EarlierState:
    """A state that there was; `touched` are the keys in which it may differ from the one before, `None` for all."""

    change: Change
    state: dict[str, Any]
    touched: frozenset[str] | None


def present_state(directory: Path) -> dict[str, Any] | None:
    """What `state.json` holds; `None` if there is none. Raises `StateDamaged`."""
    path = directory / STATE
    raw = read_whole(path, _MOST_BYTES)
    try:
        return None if raw is None else parsed(raw)
    except StateInvalid as error:
        raise StateDamaged(
            f"{path} cannot be used: {error.message}",
            hint="put a good one in its place, or remove it: then the last state of its history is used",
        ) from error


def earlier_states(directory: Path) -> Iterator[EarlierState]:
    """Every state of the history, the oldest first, up to the first line that cannot be used."""
    try:
        descriptor = opened(directory / HISTORY, os.O_RDONLY)
    except (FileNotFoundError, StateDamaged):
        return
    state: dict[str, Any] | None = None
    with os.fdopen(descriptor, "rb") as file:
        while line := file.readline(_MOST_BYTES):
            found = _entry(line)
            if found is None or (found[1] is None and state is None):
                return
            change, whole, steps = found
            if whole is not None:
                state = whole
                yield EarlierState(change, state, None)
                continue
            assert state is not None
            try:
                follow(state, steps)
            except (LookupError, TypeError, ValueError):
                return
            yield EarlierState(change, state, frozenset(step[1][0] for step in steps))


def _entry(line: bytes) -> tuple[Change, dict[str, Any] | None, list[Step]] | None:
    try:
        said = json.loads(line)
        change = Change(
            number=int(said["number"]),
            at=datetime.fromisoformat(said["at"]).astimezone(UTC),
            by=None if said["by"] is None else str(said["by"]),
            recovered=said.get("recovered") is True,
            restored=int(said["restored"]) if "restored" in said else None,
        )
        if "state" in said:
            whole = said["state"]
            return (change, whole, []) if isinstance(whole, dict) else None
        steps = said["steps"]
        return (change, None, steps) if all(step[1] for step in steps) else None
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
