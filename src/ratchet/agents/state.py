"""The state of an agent across versions: migrated, and merged with what changed meanwhile."""

from __future__ import annotations

import copy
import filecmp
import json
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.agentkit import StateInvalid
from ratchet.agentkit.values import plain
from ratchet.agents.checks.files import NotPassed, read_state
from ratchet.agents.contract import MIGRATE, SCHEMA, STATE
from ratchet.config.workflow_settings import Agents
from ratchet.judges.judge import Deadline
from ratchet.kernel import Conflict, Misuse, RatchetError
from ratchet.sandbox import Bounds, Node, Policy, run

_FUNCTION = "migrate"
_MIB = 1024 * 1024
# A state is a small file; the answer is held in memory here.
_MOST_BYTES = 64 * _MIB


class CannotCarry(RatchetError):
    """The state of an agent cannot be used by another version."""

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


def has_migration(directory: Path, parent: Path) -> bool:
    """Whether the version in `directory` has the state of the one before migrated. Raises `CannotCarry`."""
    return _to_run(directory, parent) is not None


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


_MOST_PATHS = 50
_LONGEST_PATH = 200


class Clash(Conflict):
    """Both sides changed the same place, each in its own way. `paths` are JSON pointers, at most fifty."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(path[:_LONGEST_PATH] for path in paths[:_MOST_PATHS])
        listed = ", ".join(path or "the whole value" for path in self.paths[:10])
        more = f" and {len(paths) - 10} other places" if len(paths) > 10 else ""
        super().__init__(
            f"both sides changed {listed}{more}", hint="make one of the changes at another place"
        )


class _Absent:
    """Stands for a key that an object does not have."""


_ABSENT = _Absent()


def merge(base: Any, mine: Any, theirs: Any) -> Any:
    """What becomes of `base` with both changes made. Raises `Clash`, and `Misuse` for values too deep to compare.

    Objects are merged key by key, also those that both sides added. Of two lists that only grew, both additions are
    kept, mine first. Anything else is taken whole from the side that changed it.
    """
    merged, clashes = merge_preferring(base, mine, theirs)
    if clashes:
        raise Clash(clashes)
    return merged


def merge_preferring(base: Any, mine: Any, theirs: Any) -> tuple[Any, tuple[str, ...]]:
    """The same, but where both changed a place `mine` stays; and the places where that was so."""
    clashes: list[str] = []
    try:
        return _merged(base, mine, theirs, "", clashes), tuple(clashes)
    except RecursionError as error:
        raise Misuse("the values are nested too deeply to be merged", hint="keep them flatter") from error


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values mean the same. 1 and 1.0 are one number, as in JSON; true is no number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _merged(base: Any, mine: Any, theirs: Any, path: str, clashes: list[str]) -> Any:
    if same(base, mine):
        return copy.deepcopy(theirs)
    if same(base, theirs) or same(mine, theirs):
        return copy.deepcopy(mine)
    if isinstance(mine, dict) and isinstance(theirs, dict) and isinstance(base, dict | _Absent):
        return _merged_objects(base if isinstance(base, dict) else {}, mine, theirs, path, clashes)
    if isinstance(mine, list) and isinstance(theirs, list) and isinstance(base, list | _Absent):
        begun = base if isinstance(base, list) else []
        if same(mine[: len(begun)], begun) and same(theirs[: len(begun)], begun):
            return copy.deepcopy(mine) + copy.deepcopy(theirs[len(begun) :])
    clashes.append(path)
    return copy.deepcopy(mine)


def _merged_objects(
    base: dict[str, Any], mine: dict[str, Any], theirs: dict[str, Any], path: str, clashes: list[str]
) -> dict[str, Any]:
    merged = {}
    for key in dict.fromkeys((*mine, *theirs)):
        at = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        before, one, other = (each.get(key, _ABSENT) for each in (base, mine, theirs))
        value = _merged(before, one, other, at, clashes)
        if not isinstance(value, _Absent):
            merged[key] = value
    return merged


__all__ = ["CannotCarry", "carried_state", "check_fits"]

State = dict[str, Any]

_MIGRATE_IT = (
    f"leave {STATE} as it was and add {MIGRATE}, whose migrate(state) returns the state as {SCHEMA} wants it"
)


async def carried_state(
    directory: Path,
    settings: Agents,
    *,
    base: State,
    staged: State,
    live: State,
    parent: Path | None = None,
) -> State:
    """The state for the version in `directory`. Raises `CannotCarry` if none is certain.

    `base` is the state as the engine was given it, `staged` as it left it, in the form of the new version, and `live`
    as it is now; the agent went on meanwhile. An engine that left the state alone changed nothing in it, whatever form
    the new version wants: then the live state is migrated. `parent` is the directory of the version before.
    """
    if same(staged, base):
        carried = await migrate(directory, live, settings, parent=parent)
        await check_fits(carried, directory, "the live state", _MIGRATE_IT)
        return carried
    await check_fits(staged, directory, f"the changed {STATE}", f"make {STATE} and {SCHEMA} agree")
    begun = await migrate(directory, base, settings, parent=parent)
    now = begun if same(live, base) else await migrate(directory, live, settings, parent=parent)
    try:
        merged: State = merge(begun, now, staged)
    except (Clash, Misuse) as error:
        raise CannotCarry(
            f"the agent changed its state while the new version was made, and {error}", hint=_MIGRATE_IT
        ) from error
    await check_fits(merged, directory, f"the live state with the changes of {STATE}", _MIGRATE_IT)
    return merged


async def check_fits(state: State, directory: Path, what: str, hint: str) -> None:
    """Raise `CannotCarry` unless the schema in `directory` takes the state.

    In the sandbox, since the schema is the engine's, and a pattern in it may never come to an end.
    """
    schema = directory.resolve() / SCHEMA  # noqa: ASYNC240 - a look at a local path
    with tempfile.TemporaryDirectory(prefix="ratchet-state-") as scratch:
        file = Path(scratch).resolve() / STATE  # noqa: ASYNC240
        try:
            file.write_text(json.dumps(plain(state)), encoding="utf-8")
            await read_state(schema, file, Deadline(None))
        except StateInvalid as error:
            raise CannotCarry(f"{what} cannot be used: {error}", hint=hint) from error
        except NotPassed as finding:
            reason = str(finding).replace(f"{file.parent}/", "").replace(f"{schema.parent}/", "")
            raise CannotCarry(f"{what} cannot be used: {reason}", hint=hint) from finding
