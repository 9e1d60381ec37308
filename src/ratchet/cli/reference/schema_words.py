"""JSON Schemas in words: what a value may be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

GENERATED = "This page is made of the code by `make docs`; do not change it by hand."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def block(lines: Iterable[str], language: str = "") -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def code(text: str) -> str:
    """Between backticks, whatever is in it."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def prose(text: str) -> str:
    """Text that was written for a terminal: what stands between backticks stays, and nothing else is markup."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        each if each.startswith("`") else re.sub(r"([*_<>\[\]\\])", r"\\\1", each) for each in parts
    )


def anchor(heading: str) -> str:
    """How a forge names the heading in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page(parts: Iterable[str]) -> str:
    """The parts with an empty line between them."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


Schema = Mapping[str, Any]

_LIMITS = (
    ("minimum", "at least {}"),
    ("ge", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("gt", "more than {}"),
    ("maximum", "at most {}"),
    ("le", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("lt", "less than {}"),
)
# Nobody comes near such a limit; to tell it would only be noise.
_FAR = 2**53


def type_words(schema: Schema) -> str:
    """`integer, at least 1`, `one of a, b`, `list of Step`, `text or null`."""
    if "$ref" in schema:
        return name_of(schema["$ref"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(type_words(each) for each in schema[several]))
    if "allOf" in schema:
        return " and ".join(type_words(each) for each in schema["allOf"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(str(each) for each in schema["enum"])
    return ", ".join([_plain(schema), *_limits(schema)])


def name_of(reference: str) -> str:
    """The last part of a reference, which is the name of the schema."""
    return reference.rpartition("/")[2]


def resolved(schema: Schema, schemas: Schema) -> Schema:
    """The schema itself, where a reference to it was given."""
    while "$ref" in schema:
        schema = schemas[name_of(schema["$ref"])]
    return schema


def sample(schema: Schema, schemas: Schema) -> Any:
    """A value that could be sent."""
    schema = resolved(schema, schemas)
    if schema.get("examples"):
        return schema["examples"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return sample(schema[several][0], schemas)
    if "default" in schema:
        return schema["default"]
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            needed = schema.get("required", ())
            return {name: sample(schema["properties"][name], schemas) for name in needed}
        case "array":
            return []
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case _:
            return "…"


def _plain(schema: Schema) -> str:
    match schema.get("type"):
        case "string":
            return {"date-time": "time", "binary": "bytes"}.get(schema.get("format", ""), "text")
        case "array":
            inner = schema.get("items")
            return f"list of {type_words(inner)}" if inner else "list"
        case "object":
            inner = schema.get("additionalProperties")
            return f"object of {type_words(inner)}" if isinstance(inner, Mapping) and inner else "object"
        case str(other):
            return other
        case _:
            return "any value"


def _limits(schema: Schema) -> list[str]:
    return [
        words.format(f"{schema[key]:g}" if schema[key] < 1e6 else schema[key])
        for key, words in _LIMITS
        if key in schema and abs(schema[key]) < _FAR
    ]
