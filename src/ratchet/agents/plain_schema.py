"""Schemas that an agent may have answers held against.

They are applied in the process that serves every agent, so one must not be able to keep it busy: a regular expression
can take hours over a line, and references that double at each step can do the same with a few words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.kernel import Misuse

_MOST = 500
_DEEPEST = 20
_ABOUT = frozenset({"title", "description", "default", "examples", "format", "$schema"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_SIZES = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_WORDS = frozenset({"type", "enum", "const", "required"}) | _ABOUT | _NUMBERS | _SIZES
_ONE = frozenset({"items", "additionalProperties"})
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties"})
_DEFINED = ("$defs", "definitions")
_USABLE = ", ".join(sorted({*_WORDS, *_ONE, *_SEVERAL, *_NAMED, *_DEFINED, "$ref"}))


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema with every `$ref` replaced by what it means. Raises `Misuse` for one that cannot be had so."""
    defined = {
        f"#/{place}/{name}": each for place in _DEFINED for name, each in _table(schema, place).items()
    }
    whole = _Plain(defined).of({name: each for name, each in schema.items() if name not in _DEFINED})
    assert isinstance(whole, dict)
    return whole


def _table(schema: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    found = schema.get(place, {})
    if not isinstance(found, Mapping):
        raise Misuse(f"{place} of the schema is not an object")
    return found


class _Plain:
    def __init__(self, defined: Mapping[str, Any]) -> None:
        self._defined = defined
        self._left = _MOST

    def of(self, schema: Any, depth: int = 0) -> dict[str, Any] | bool:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise Misuse(
                f"the schema has more than {_MOST} parts, is more than {_DEEPEST} deep, or refers to itself",
                hint="ask for something simpler",
            )
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise Misuse(f"a part of the schema is neither an object nor true or false: {str(schema)[:80]}")
        plain: dict[str, Any] = {}
        for word, value in schema.items():
            plain |= self._meant(word, value, depth + 1)
        return plain

    def _meant(self, word: str, value: Any, depth: int) -> dict[str, Any]:
        if word in _WORDS:
            return {word: value}
        if word in _ONE:
            return {word: self.of(value, depth)}
        if word in _SEVERAL and isinstance(value, list):
            return {word: [self.of(each, depth) for each in value]}
        if word in _NAMED and isinstance(value, Mapping):
            return {word: {name: self.of(each, depth) for name, each in value.items()}}
        if word == "$ref" and isinstance(value, str) and value in self._defined:
            meant = self.of(self._defined[value], depth)
            return meant if isinstance(meant, dict) else {"allOf": [meant]}
        raise Misuse(
            f"{word[:80]!r} cannot be used so in the schema of an answer", hint=f"use only {_USABLE}"
        )
