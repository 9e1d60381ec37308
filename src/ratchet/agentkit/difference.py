"""What changed from one JSON value to another, as steps that make the second out of the first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

Path = tuple[str | int, ...]
Step = list[Any]
"""`["set", path, value]`, `["cut", path]` for a key that is gone, or `["splice", path, start, removed, items]`."""


def difference(old: dict[str, Any], new: dict[str, Any]) -> list[Step]:
    """The steps from `old` to `new`; none if they are the same."""
    return list(_steps(old, new, ()))


def follow(state: dict[str, Any], steps: Sequence[Step]) -> None:
    """Make the change in `state` itself. Raises `LookupError`, `TypeError` or `ValueError` where it does not fit."""
    for verb, path, *rest in steps:
        if verb == "splice":
            start, removed, items = rest
            _found(state, path)[start : start + removed] = items
        elif verb == "set":
            _found(state, path[:-1])[path[-1]] = rest[0]
        elif verb == "cut":
            del _found(state, path[:-1])[path[-1]]
        else:
            raise ValueError(f"{verb!r} is no step")


def _steps(old: Any, new: Any, path: Path) -> Iterator[Step]:
    if _same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _in_object(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _in_list(old, new, path)
    else:
        yield ["set", [*path], new]


def _in_object(old: dict[str, Any], new: dict[str, Any], path: Path) -> Iterator[Step]:
    for key in old:
        if key not in new:
            yield ["cut", [*path, key]]
    for key, value in new.items():
        if key in old:
            yield from _steps(old[key], value, (*path, key))
        else:
            yield ["set", [*path, key], value]


def _in_list(old: list[Any], new: list[Any], path: Path) -> Iterator[Step]:
    start = 0
    while start < min(len(old), len(new)) and _same(old[start], new[start]):
        start += 1
    tail = 0
    while tail < min(len(old), len(new)) - start and _same(old[-1 - tail], new[-1 - tail]):
        tail += 1
    if len(old) == len(new):
        for place in range(start, len(old) - tail):
            yield from _steps(old[place], new[place], (*path, place))
    else:
        yield ["splice", [*path], start, len(old) - tail - start, new[start : len(new) - tail]]


def _same(one: Any, other: Any) -> bool:
    # To Python 1, 1.0 and True are equal, and so are 0.0 and -0.0; as JSON they are not.
    return bool(one == other) and _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _found(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value
