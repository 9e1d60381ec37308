"""References to values inside a workflow: `inputs.topic`, `steps.clean.output.rows[0]`, `${…}` inside a text.

A text that is a reference and nothing else stands for the value, whatever its type. `${…}` inside a longer text is
replaced by the value as text, or as JSON when it is no text. `$${…}` stays as `${…}`. Everything else is a literal.
`item`, `item.<path>` and `index` are references only in a step that runs for each item of a list, `last`, `last.<path>`
and `round` only in one that is repeated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from .errors import StepFailed

Kind = Literal["inputs", "steps", "item", "index", "last", "round"]
Own = frozenset[str]
"""The names that a step has for itself: those of its list, of its rounds, of both, or none."""
NO_NAMES: Own = frozenset()
OF_ITEMS: Own = frozenset({"item", "index"})
OF_ROUNDS: Own = frozenset({"last", "round"})
ALL_NAMES: Own = OF_ITEMS | OF_ROUNDS

_SEGMENT = r"""(?:\.[\w-]+|\[\d{1,9}\]|\['[^']*'\]|\["[^"]*"\])"""
_NAMED = rf"(?:inputs|steps)\.[\w-]+{_SEGMENT}*"
_OF_ITEMS = rf"item{_SEGMENT}*|index"
_OF_ROUNDS = rf"last{_SEGMENT}*|round"
_REFERENCE = rf"(?:{_NAMED}|{_OF_ITEMS}|{_OF_ROUNDS})"
_SEGMENTS = re.compile(_SEGMENT)
_KNOWN = {
    NO_NAMES: _NAMED,
    OF_ITEMS: rf"(?:{_NAMED}|{_OF_ITEMS})",
    OF_ROUNDS: rf"(?:{_NAMED}|{_OF_ROUNDS})",
    ALL_NAMES: _REFERENCE,
}
_WHOLE = {own: re.compile(known) for own, known in _KNOWN.items()}
_INSIDE = {
    own: re.compile(rf"(?P<escape>\$)?\$\{{\s*(?P<reference>{known})\s*\}}") for own, known in _KNOWN.items()
}
_BEGINNINGS = ("inputs.", "steps.", "item", "index", "last", "round", "${")
PATTERN = _REFERENCE
"""What a reference looks like, for the readers of longer texts."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a value comes from. The path of a step's value begins with its id and the name of its output."""

    kind: Kind
    path: tuple[str | int, ...] = ()

    @property
    def name(self) -> str:
        """The input or the step that is meant."""
        return str(self.path[0])

    @property
    def below(self) -> tuple[str | int, ...]:
        """The way into the value itself."""
        return self.path[{"inputs": 1, "steps": 2}.get(self.kind, 0) :]

    def __str__(self) -> str:
        return self.kind + "".join(_segment(part) for part in self.path)


Lookup = Callable[[Reference], Any]


def read_reference(text: str, *, own: Own = NO_NAMES) -> Reference | None:
    """The reference that the whole text is, bare or as `${…}`; nothing if it is a literal."""
    if not text.startswith(_BEGINNINGS):
        return None
    inside = _INSIDE[own].fullmatch(text) if text[0] == "$" else None
    if inside and not inside["escape"]:
        return _read(inside["reference"])
    return _read(text) if _WHOLE[own].fullmatch(text) else None


def find_references(value: Any, *, own: Own = NO_NAMES) -> tuple[Reference, ...]:
    """The references anywhere in a JSON value, each once and in order. `own` are the names of its step."""
    return tuple(dict.fromkeys(_references(value, own)))


def find_inside(text: str, *, own: Own = NO_NAMES) -> tuple[Reference, ...]:
    """The references of a template, in which only the form `${…}` counts."""
    if "${" not in text:
        return ()
    found = _INSIDE[own].finditer(text)
    return tuple(dict.fromkeys(_read(match["reference"]) for match in found if not match["escape"]))


def resolve(value: Any, lookup: Lookup, *, own: Own = NO_NAMES) -> Any:
    """The value with every reference in it replaced by what `lookup` says; looked-up values are not read again."""
    if isinstance(value, str):
        reference = read_reference(value, own=own)
        return lookup(reference) if reference else resolve_inside(value, lookup, own=own)
    if isinstance(value, Mapping):
        return {key: resolve(inner, lookup, own=own) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(inner, lookup, own=own) for inner in value]
    return value


def resolve_inside(text: str, lookup: Lookup, *, own: Own = NO_NAMES) -> str:
    """A template with each `${…}` replaced by its value as text."""
    if "${" not in text:
        return text

    def put(match: re.Match[str]) -> str:
        return match[0][1:] if match["escape"] else as_text(lookup(_read(match["reference"])))

    return _INSIDE[own].sub(put, text)


def as_text(value: Any) -> str:
    """A value inside a longer text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def take(reference: Reference, value: Any) -> Any:
    """What the reference means, once the value of its input, step or item is known.

    Raises `StepFailed` if the path leads nowhere.
    """
    for part in reference.below:
        value = _enter(value, part, reference)
    return value


def _references(value: Any, own: Own) -> Iterator[Reference]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            reference = read_reference(value, own=own)
            if reference:
                yield reference
            elif "${" in value:
                yield from find_inside(value, own=own)
        elif isinstance(value, Mapping):
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, list | tuple):
            waiting.extend(reversed(value))


@lru_cache(maxsize=16384)
def _read(text: str) -> Reference:
    kind = text.partition(".")[0].partition("[")[0]
    parts = _SEGMENTS.findall(text[len(kind) :])
    return Reference(kind, tuple(_part(part) for part in parts))  # type: ignore[arg-type]


def _part(segment: str) -> str | int:
    if segment.startswith("."):
        return segment[1:]
    inner = segment[1:-1]
    return inner[1:-1] if inner[0] in "'\"" else int(inner)


def _segment(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if re.fullmatch(r"[\w-]+", part) else f"[{part!r}]"


def _enter(value: Any, part: str | int, reference: Reference) -> Any:
    if isinstance(value, Mapping) and str(part) in value:
        return value[str(part)]
    if isinstance(value, list | tuple) and str(part).isdecimal() and int(part) < len(value):
        return value[int(part)]
    raise StepFailed(f"{reference} leads nowhere: {_described(value)} has no {part!r}", final=True)


def _described(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"an object with {', '.join(map(str, list(value)[:10])) or 'nothing'}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return {str: "a text", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
