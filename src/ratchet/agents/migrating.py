"""Bringing a state into the form that a new version wants, by the version's own migrate.py."""

from __future__ import annotations

import filecmp
import json
import os
import stat
from pathlib import Path
from typing import Any

from ratchet.agents.contract import MIGRATE
from ratchet.config.agent_settings import Agents
from ratchet.kernel import Misuse, RatchetError
from ratchet.sandbox import Bounds, Node, Policy, run

_FUNCTION = "migrate"
_MIB = 1024 * 1024
# A state is a small file; the answer is held in memory here.
_MOST_BYTES = 64 * _MIB


class CannotCarry(RatchetError):
    """The state of an agent cannot go on with another version."""

    http_status = 409


async def migrate(
    directory: Path, state: dict[str, Any], settings: Agents, *, parent: Path | None = None
) -> dict[str, Any]:
    """What the migrate.py in `directory` makes of `state`; without one, the state as it is. Raises `CannotCarry`.

    It runs in the sandbox, sees its directory and changes nothing. One that lies unchanged in `parent`, the directory
    of the version before, has done its work already and is not run again.
    """
    file = _to_run(directory, parent)
    if file is None:
        return state
    try:
        finished = await run(
            Node(file, _FUNCTION),
            stdin=json.dumps(state, allow_nan=False).encode(),
            bounds=Bounds(
                wall_seconds=settings.call_seconds,
                memory_bytes=settings.memory_mb * _MIB,
                output_bytes=_MOST_BYTES,
            ),
            policy=Policy(readable=(file.parent,)),
        )
        migrated = finished.value if finished.ok else None
    except (Misuse, ValueError, RecursionError) as error:
        raise _failed(str(error)) from error
    if not isinstance(migrated, dict):
        raise _failed(finished.problem or f"it returned no object but {type(migrated).__name__}")
    return migrated


def _to_run(directory: Path, parent: Path | None) -> Path | None:
    # Where modules beside it are looked for is where the sandbox shows them: at the real path.
    file = directory.resolve() / MIGRATE
    if not os.path.lexists(file) or (parent is not None and _is_the_same(file, parent / MIGRATE)):
        return None
    if not _is_plain(file):
        raise _failed("it is no plain file")
    return file


def _is_the_same(file: Path, other: Path) -> bool:
    return _is_plain(file) and _is_plain(other) and filecmp.cmp(file, other, shallow=False)


def _is_plain(file: Path) -> bool:
    return os.path.lexists(file) and stat.S_ISREG(file.lstat().st_mode)


def _failed(reason: str) -> CannotCarry:
    return CannotCarry(
        f"{MIGRATE} failed: {reason}",
        hint=f"`{_FUNCTION}(state)` in {MIGRATE} must return the whole state as an object that fits the new schema",
    )
