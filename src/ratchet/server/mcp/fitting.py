"""Making an answer short enough for a model: what is long in it is cut, and the answer says where."""

from __future__ import annotations

import json
from typing import Any

from ratchet.kernel import RatchetError
from ratchet.server.mcp.declared import LONGEST_ANSWER

# How long a single text may stay, tried in turn until the whole fits.
_LENGTHS = (20_000, 5_000, 1_000, 200)

CUT: dict[str, Any] = {
    "type": "array",
    "description": "what was too long and shows only its beginning, as text; read_part reads on",
    "items": {
        "type": "object",
        "properties": {
            "at": {"type": "string", "description": "a JSON pointer into this answer"},
            "shown": {
                "type": "integer",
                "description": "characters that are shown: the offset to go on from",
            },
            "whole": {"type": "integer", "description": "characters of the whole text"},
        },
        "required": ["at", "shown", "whole"],
    },
}


class TooLong(RatchetError):
    """The answer is long because of how many things are in it."""


def fitting(value: dict[str, Any], free: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The answer, cut where it would be too long. Raises `TooLong`.

    Long texts show their beginning, and so do values under a name in `free`, as JSON: their schema allows anything.
    `cut` in the answer names all of them.
    """
    size = _size(value)
    if size <= LONGEST_ANSWER:
        return value
    for length in _LENGTHS:
        shortening = _Shortening(length, free)
        shorter = {**shortening.of(value, ""), "cut": shortening.cuts}
        if _size(shorter) <= LONGEST_ANSWER:
            return shorter
    raise TooLong(
        f"the answer has {size} characters, and {LONGEST_ANSWER} are the most",
        hint="ask for fewer with `limit` where that is taken, or read it in parts with read_part",
    )


def free_names(schema: Any) -> frozenset[str]:
    """The names of properties that can hold anything, wherever they are in the schema."""
    found: dict[str, bool] = {}
    _look_for_names(schema, found)
    return frozenset(name for name, free in found.items() if free)


def at(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to. Raises `KeyError`, `IndexError`, `TypeError` or `ValueError` if nothing."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def as_text(value: Any) -> str:
    """What offsets into a value count: the characters of a text, or of the JSON of anything else."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _look_for_names(schema: Any, found: dict[str, bool]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _look_for_names(each, found)
    elif isinstance(schema, dict):
        for name, property_schema in schema.get("properties", {}).items():
            free = not property_schema.keys() - {"description", "default"}
            found[name] = found.get(name, True) and free
        for each in schema.values():
            _look_for_names(each, found)


class _Shortening:
    """Cuts what is longer than `length`, and remembers where."""

    def __init__(self, length: int, free: frozenset[str]) -> None:
        self.cuts: list[dict[str, Any]] = []
        self._length = length
        self._free = free

    def of(self, value: Any, pointer: str, *, free: bool = False) -> Any:
        if isinstance(value, str) or free:
            text = as_text(value)
            return value if len(text) <= self._length else self._cut(text, pointer)
        if isinstance(value, dict):
            return {
                key: self.of(each, f"{pointer}/{_escaped(key)}", free=_is_nested(each) and key in self._free)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self.of(each, f"{pointer}/{place}") for place, each in enumerate(value)]
        return value

    def _cut(self, text: str, pointer: str) -> str:
        self.cuts.append({"at": pointer, "shown": self._length, "whole": len(text)})
        return text[: self._length]


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
