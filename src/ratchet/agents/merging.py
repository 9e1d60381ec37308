"""Bringing two changes of one JSON value together, without a guess where they contradict each other."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ratchet.kernel import Conflict, Misuse

_MOST_PATHS = 50
_LONGEST_PATH = 200


class Clash(Conflict):
    """Both sides changed the same place, each in its own way. `paths` are JSON pointers, at most fifty."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(path[:_LONGEST_PATH] for path in paths[:_MOST_PATHS])
        told = ", ".join(path or "the whole value" for path in self.paths[:10])
        more = f" and {len(paths) - 10} other places" if len(paths) > 10 else ""
        super().__init__(f"both sides changed {told}{more}", hint="make one of the changes at another place")


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
