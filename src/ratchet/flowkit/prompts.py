"""Prompts of model calls: `{name}` stands for a value of the step's inputs, `${…}` for any reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .references import PATTERN, Lookup, as_text, read_reference

_PLACE = re.compile(
    rf"(?P<escape>\$)?\$\{{\s*(?P<reference>{PATTERN})\s*\}}"
    r"|\{\{(?P<literal>[A-Za-z_][\w-]*)\}\}"
    r"|(?<![{$])\{(?P<name>[A-Za-z_][\w-]*)\}(?!\})"
)


def names_in(template: str) -> tuple[str, ...]:
    """The names that a prompt leaves a place for, each once; `{{name}}` is a text and no place."""
    return tuple(dict.fromkeys(match["name"] for match in _PLACE.finditer(template) if match["name"]))


def fill_prompt(
    template: str, values: Mapping[str, Any], lookup: Lookup | None = None, *, items: bool = False
) -> str:
    """The prompt with its places filled, all at once: braces inside a value stay what they are.

    A name without a value stays as it is written, and so does a reference that nobody can look up.
    """

    def put(match: re.Match[str]) -> str:
        if match["literal"]:
            return f"{{{match['literal']}}}"
        if match["name"]:
            return as_text(values[match["name"]]) if match["name"] in values else match[0]
        if match["escape"]:
            return match[0][1:]
        reference = read_reference(match["reference"], items=items)
        return as_text(lookup(reference)) if reference and lookup else match[0]

    return _PLACE.sub(put, template)
