"""Texts with placeholders: templates of tools, and prompts of steps.

In a template of a tool `{name}` stands for the value of that name; templates keep to `str.format`, for which tools of
the original system were written. In a prompt of a step `{name}` is one of its inputs and `${…}` any reference.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Any

from .errors import StepFailed
from .references import NO_NAMES, PATTERN, Lookup, Own, as_text, read_reference

_PLACE = re.compile(
    rf"(?P<escape>\$)?\$\{{\s*(?P<reference>{PATTERN})\s*\}}"
    r"|\{\{(?P<literal>[A-Za-z_][\w-]*)\}\}"
    r"|(?<![{$])\{(?P<name>[A-Za-z_][\w-]*)\}(?!\})"
)
_NAME = re.compile(r"\w+")
_BRACED = re.compile(r"\{(\w+)\}")


def names_in(template: str) -> tuple[str, ...]:
    """The names that a prompt leaves a place for, each once; `{{name}}` is a text and no place."""
    return tuple(dict.fromkeys(match["name"] for match in _PLACE.finditer(template) if match["name"]))


def fill_prompt(
    template: str, values: Mapping[str, Any], lookup: Lookup | None = None, *, own: Own = NO_NAMES
) -> str:
    """The prompt with its places filled, all at once: braces inside a value stay what they are.

    A name without a value stays as it is written, and so does a reference that cannot be looked up.
    """

    def put(match: re.Match[str]) -> str:
        if match["literal"]:
            return f"{{{match['literal']}}}"
        if match["name"]:
            return as_text(values[match["name"]]) if match["name"] in values else match[0]
        if match["escape"]:
            return match[0][1:]
        reference = read_reference(match["reference"], own=own)
        return as_text(lookup(reference)) if reference and lookup else match[0]

    return _PLACE.sub(put, template)


def fill(template: str, values: Mapping[str, Any]) -> str:
    """`template` with the values in it; what is not a text is written as JSON.

    Braces mean what they mean to `str.format`: doubled ones are plain braces, and a name without a value raises
    `StepFailed`. A template that holds other braces as well, such as an example of JSON, is none of these: there only
    the names of values are replaced, and everything else stays as it is.
    """
    pieces = _pieces(template)
    if pieces is None:
        return _BRACED.sub(
            lambda found: as_text(values[found[1]]) if found[1] in values else found[0], template
        )
    missing = sorted({name for _, name in pieces if name is not None and name not in values})
    if missing:
        known = ", ".join(map(str, values)) or "nothing"
        raise StepFailed(
            f"the template has {', '.join(f'{{{name}}}' for name in missing)}, but the inputs are: {known}",
            final=True,
            hint="map an input of that name, or write {{ and }} for plain braces",
        )
    return "".join(text + ("" if name is None else as_text(values[name])) for text, name in pieces)


def prompt_of(template: str | None, values: Mapping[str, Any]) -> str:
    """The template with the values in it; without one, the values themselves are the prompt."""
    if template:
        return fill(template, values)
    match dict(values):
        case {"prompt": str(prompt)}:
            return prompt
        case one if len(one) == 1:
            return as_text(next(iter(one.values())))
    return "\n".join(f"{name}: {as_text(value)}" for name, value in values.items())


def _pieces(template: str) -> list[tuple[str, str | None]] | None:
    """Each text and the name behind it; nothing if the template has braces that are around something else."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        return None
    if any(name is not None and (form or how or not _NAME.fullmatch(name)) for _, name, form, how in parsed):
        return None
    return [(text, name) for text, name, _, _ in parsed]
