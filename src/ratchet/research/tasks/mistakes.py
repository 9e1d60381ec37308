"""Saying what is wrong in a task.toml: the key, its line, and the key that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ratchet.config.complaints import explain_invalid
from ratchet.config.sources import Given, Key, dotted, line_of, most_like
from ratchet.kernel import Misuse
from ratchet.research.tasks.tables import tables

# Finding a line reads the whole text; somebody who has made more mistakes than this mends the first of them first.
_MOST_LINES = 20


def explain(error: ValidationError, path: Path, text: str, found: Mapping[str, Any]) -> Misuse:
    """What validation found in `found`, which is what `text` means."""
    wrong = error.errors()
    unknown = [_key(each["loc"]) for each in wrong if each["type"] == "extra_forbidden"]
    if unknown:
        return _unknown(unknown, path, text)
    keys = [_key(each["loc"]) for each in wrong][:_MOST_LINES]
    given = {key: Given(_value(found, key), "file", f"{path}{line_of(text, key)}") for key in keys}
    return explain_invalid([(_key(each["loc"]), each["msg"]) for each in wrong], given)


def _unknown(keys: list[Key], path: Path, text: str) -> Misuse:
    told = [
        f"{_shown(key)} ({path}{line_of(text, key)}) is unknown; the nearest is {_shown(_nearest(key))}"
        for key in keys[:_MOST_LINES]
    ]
    more = f"\n  and {len(keys) - _MOST_LINES} more" if len(keys) > _MOST_LINES else ""
    many = f"{len(keys)} keys are unknown:\n  " if len(keys) > 1 else ""
    return Misuse(many + "\n  ".join(told) + more, hint="rename or remove it")


def _nearest(key: Key) -> Key:
    """The key that exists and is spelled most like `key`, in the same variant."""
    variant, plain = (key[:2], key[2:]) if key[0] == "variants" and len(key) > 2 else ((), key)
    return variant + most_like(_without_numbers(plain), _known(bool(variant)))


def _known(in_variant: bool) -> Iterable[Key]:
    for name, table in tables().items():
        yield (name,)
        yield from ((name, key) for key in table.model_fields)
    yield ("agents",) if in_variant else ("variants",)


def _shown(key: Key) -> str:
    return dotted(_without_numbers(key))


def _without_numbers(key: Key) -> Key:
    return tuple(part for part in key if not part.isdecimal())


def _key(location: Iterable[int | str]) -> Key:
    return tuple(map(str, location))


def _value(found: Any, key: Key) -> Any:
    """What stands at `key`, as far as it leads."""
    for part in key:
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            break
    return found
