"""Which values a state may hold, and what changed from one to another."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from ratchet.agentkit.errors import StateInvalid

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
    return bool(one == other) and text_of(one) == text_of(other)


def _found(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


MOST_BYTES = 256 * 1024 * 1024
"""Of a whole state, as text."""
_MOST_VALUES = 2_000_000
_DEEPEST = 100
_LARGEST_BITS = 4096


class _Refused(Exception):
    """What is wrong with a value, and, gathered on the way up, where it lies."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.steps: list[str | int] = []


def plain(value: object) -> dict[str, Any]:
    """A copy of a state, made of nothing but dicts, lists, texts, numbers, booleans and None.

    Raises `StateInvalid` for what JSON cannot say, and for a state that is too deep or too large.
    """
    if not isinstance(value, dict):
        raise StateInvalid(f"is {_kind(value)}; the whole state must be an object (a dict)")
    return {_checked(_key, key): plain_value(key, child) for key, child in value.items()}


def plain_value(key: str, value: object) -> Any:
    """The same for the value of one top-level key."""
    return _checked(lambda child: _Copying().at(key, child, _DEEPEST), value)


def _checked(copied: Callable[[Any], Any], value: object) -> Any:
    try:
        return copied(value)
    except _Refused as refused:
        raise StateInvalid(str(refused), path=_path(refused.steps)) from None


def _key(key: object) -> str:
    return _Copying().key(key)


def parsed(raw: bytes) -> dict[str, Any]:
    """The state that a file holds. Raises `StateInvalid`."""
    try:
        value = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise StateInvalid(f"is not JSON: {error}") from error
    return plain(value)


def text_of(value: Any) -> str:
    """A value as JSON, the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class _Copying:
    def __init__(self) -> None:
        # What shares its parts can be far larger as text than it is in memory: these end the copy before memory does.
        self._values = 0
        self._chars = 0

    def copied(self, value: object, deeper: int) -> Any:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _Refused(f"is one value too many; a state has at most {_MOST_VALUES:,}")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return _integer(value)
        if isinstance(value, float):
            return _real(value)
        if isinstance(value, dict | list | tuple):
            return self._container(value, deeper)
        raise _Refused(f"is {_kind(value)}, which JSON cannot say")

    def _text(self, value: str) -> str:
        self._chars += len(value)
        if self._chars > MOST_BYTES:
            raise _Refused(f"makes the state longer than {MOST_BYTES:,} bytes")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise _Refused("is a text with half a character (a lone surrogate)") from error
        # An enumeration of texts prints as its name; its content is what is meant.
        return value if type(value) is str else str.__str__(value)

    def _container(self, value: dict[Any, Any] | list[Any] | tuple[Any, ...], deeper: int) -> Any:
        if deeper == 0:
            raise _Refused(f"is nested deeper than {_DEEPEST} levels, or contains itself")
        if isinstance(value, dict):
            return {self.key(key): self.at(key, child, deeper) for key, child in value.items()}
        return [self.at(place, child, deeper) for place, child in enumerate(value)]

    def key(self, key: object) -> str:
        if not isinstance(key, str):
            raise _Refused(f"has the key {key!r:.80}, {_kind(key)}; the keys of an object are texts")
        return self._text(key)

    def at(self, step: str | int, child: object, deeper: int) -> Any:
        try:
            return self.copied(child, deeper - 1)
        except _Refused as refused:
            refused.steps.append(step)
            raise


def _integer(value: int) -> int:
    if value.bit_length() > _LARGEST_BITS:
        raise _Refused(f"is an integer of more than {_LARGEST_BITS} bits")
    return value if type(value) is int else int(value)


def _real(value: float) -> float:
    if not math.isfinite(value):
        raise _Refused(f"is {value}, which JSON cannot say")
    return value if type(value) is float else float(value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _path(steps: list[str | int]) -> str:
    """Like `state.notes[3].text`; the steps come innermost first."""
    shown = (f"[{step}]" if isinstance(step, int) else f".{step:.60}" for step in reversed(steps[-20:]))
    return f"state{''.join(shown)}"
