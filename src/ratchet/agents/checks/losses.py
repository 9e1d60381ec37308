"""Two states of an agent held against each other: whether a migration, or an engine's edit, lost or doubled something.

A state may take any form, so that names say little: what counts is that every value is still somewhere. Values that
say nothing (zero, false, an empty text) may come and go, but not the entries of a list or an object that stays; and a
migration that leaves a key where it was leaves its value there: else two accounts could change their owners.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.agents.checks.files import BrokenContract, NotPassed
from ratchet.agents.contract import MIGRATE, STATE
from ratchet.agents.state import CannotCarry, migrate
from ratchet.config.workflow_settings import Agents

_SHOWN = 5
_LONGEST_PATH = 100
Leaf = tuple[str, Hashable]


@dataclass(frozen=True, slots=True)
class StateComparison:
    """`lost`, `doubled` and `replaced` are JSON pointers into the older state; the rest is measured of both."""

    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    replaced: tuple[str, ...]
    keys: tuple[int, int]
    values: tuple[int, int]
    bytes: tuple[int, int]

    @property
    def problem(self) -> str | None:
        """What a person must know before the newer state takes the place of the older."""
        found = []
        if self.lost:
            found.append(f"loses {_listed(self.lost)}")
        if self.doubled:
            found.append(f"doubles {_listed(self.doubled)}")
        if self.replaced:
            found.append(f"puts other values in the place of {_listed(self.replaced)}")
        if not found:
            return None
        counted = (
            f"{self.values[0]} values in {self.bytes[0]} bytes become {self.values[1]} in {self.bytes[1]}"
        )
        return f"{' and '.join(found)} ({counted})"

    def details(self) -> dict[str, Any]:
        names = ("before", "after")
        return {
            "lost": len(self.lost),
            "doubled": len(self.doubled),
            "replaced": len(self.replaced),
            **{key: dict(zip(names, getattr(self, key), strict=True)) for key in ("keys", "values", "bytes")},
        }


def compare_states(
    before: Mapping[str, Any], after: Mapping[str, Any], *, edited: bool = False
) -> StateComparison:
    """What is gone of `before` in `after`. In one that was `edited` on purpose, a value may take the place of another,
    and lists may grow."""
    old, new = _Taken(before), _Taken(after)
    left, lost = new.counts.copy(), []
    for path, leaf in old.leaves.items():
        if edited and path in new.leaves:
            continue
        if left[leaf] > 0:
            left[leaf] -= 1
        else:
            lost.append(path)
    lost += [path for path, size in old.sizes.items() if path and new.sizes.get(path, size) < size]
    # The keys of an object may be what was learned; then they are elsewhere now, as keys or as texts.
    gone = old.words - new.words
    lost += [path for path in old.maps if path not in new.sizes and any(map(gone.get, old.maps[path]))]
    doubled = (
        [] if edited else [path for path, size in old.sizes.items() if new.lists.get(path, 0) > size > 0]
    )
    if not edited and not doubled:
        more = [path for path, leaf in old.leaves.items() if new.counts[leaf] > old.counts[leaf]]
        doubled = more if len(more) > 1 and 2 * len(more) >= len(old.leaves) else []
    replaced = [
        path
        for path, leaf in old.leaves.items()
        if not edited and path in old.named and new.named.get(path, leaf) != leaf
    ]
    sizes = (len(json.dumps(before)), len(json.dumps(after)))
    return StateComparison(
        lost=tuple(dict.fromkeys(lost)),
        doubled=tuple(doubled),
        # What is nowhere any more is said once.
        replaced=tuple(path for path in replaced if path not in lost),
        keys=(len(before), len(after)),
        values=(len(old.leaves), len(new.leaves)),
        bytes=sizes,
    )


async def check_state_kept(
    directory: Path, before: dict[str, Any], staged: Any, settings: Agents, *, parent: Path
) -> dict[str, Any]:
    """Hold what becomes of the state `before` in the version in `directory` against it; what the report shows.

    `staged` is the state as the engine left it. Raises `BrokenContract` for a loss, and `NotPassed` if migrate.py fails
    or does not end.
    """
    try:
        migrated = await migrate(directory, copy.deepcopy(before), settings, parent=parent)
    except CannotCarry as error:
        raise NotPassed(f"{error}; {error.hint}") from None
    compared = compare_states(before, migrated)
    problem = compared.problem and f"{MIGRATE} {compared.problem}"
    if problem is None and isinstance(staged, dict) and staged not in (before, migrated):
        # In the form of the new version, as it may be edited only.
        compared = compare_states(migrated, staged, edited=True)
        problem = compared.problem and f"the change of {STATE} {compared.problem}"
    if problem is not None:
        raise BrokenContract(problem, compared.details())
    return compared.details()


class _Taken:
    """A state taken apart: its values that say something by their paths, and how many entries are where."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.leaves: dict[str, Leaf] = {}
        self.sizes: dict[str, int] = {}
        self.lists: dict[str, int] = {}
        self.maps: dict[str, set[str]] = {}
        self.words: Counter[str] = Counter()
        self.named: dict[str, Leaf] = {}
        for path, value, is_named in _parts(state):
            if is_named and not isinstance(value, Mapping | list):
                self.named[path] = (_kind(value), value)
            if isinstance(value, Mapping):
                self.sizes[path] = len(value)
                self.words.update(value.keys())
                if path:
                    self.maps[path] = set(value)
            elif isinstance(value, list):
                self.sizes[path] = self.lists[path] = len(value)
            elif value:
                self.leaves[path] = (_kind(value), value)
                self.words.update([value] if isinstance(value, str) else ())
        self.counts = Counter(self.leaves.values())


def _parts(state: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Every value in a state with its path, and whether keys alone lead there, without recursion: an agent decides how
    deep it is."""
    waiting: list[tuple[str, Any, bool]] = [("", state, True)]
    while waiting:
        path, value, is_named = waiting.pop()
        yield path, value, is_named
        if isinstance(value, Mapping):
            waiting += [
                (f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}", value[key], is_named)
                for key in value
            ]
        elif isinstance(value, list):
            waiting += [(f"{path}/{number}", each, False) for number, each in enumerate(value)]


def _kind(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _listed(paths: tuple[str, ...]) -> str:
    shown = ", ".join(path[:_LONGEST_PATH] for path in paths[:_SHOWN])
    return shown if len(paths) <= _SHOWN else f"{shown} and {len(paths) - _SHOWN} other places"
