"""Making a tool of a definition: the keys that every tool has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.kernel.semver import Bump, is_semver
from ratchet.tools.bodies import Body
from ratchet.tools.body_reading import BODIES
from ratchet.tools.definition import CALLABLE, Constraints, Example, Tool, ToolType
from ratchet.tools.fields import Fields, ToolError, Unreadable
from ratchet.tools.schemas import to_json_schema
from ratchet.tools.yaml_file import loaded_json

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}", re.ASCII)
_COST = ("free", "low", "medium", "high", "very-high")
_SPEED = ("very-fast", "fast", "medium", "slow", "very-slow")
_QUALITY = ("poor", "good", "very-good", "excellent")
_OTHER_WORDS = {"instant": "very-fast", "very-low": "low", "average": "good"}
_TYPE_WORDS = {"api": "openapi", "script": "python"}
_OUTSIDE = frozenset({ToolType.OPENAPI, ToolType.MCP})
_MOST_EXAMPLES = 200
_MOST_SECONDS = 7 * 24 * 3600


def read(
    data: Mapping[str, Any], *, folder: Path | None, id: str | None, file: str | None, stored: bool
) -> Tool:
    fields = Fields(data, folder=folder)
    tool_id = _id(fields, id)
    kind = _type(fields)
    body = _body(fields, kind)
    network = fields.flag("network", kind in _OUTSIDE)
    common: dict[str, Any] = {
        "name": fields.text("name", tool_id),
        "description": fields.text("description"),
        "tags": tuple(dict.fromkeys(fields.texts("tags"))),
        "cost_tier": _tier(fields, "cost_tier", _COST),
        "speed_tier": _tier(fields, "speed_tier", _SPEED),
        "quality_tier": _tier(fields, "quality_tier", _QUALITY),
        "max_output_length": fields.optional_text("max_output_length"),
        "priority": float(fields.number("priority") or 0),
        "version": _version(fields),
        "change_type": _change_type(fields),
        "breaking_changes": fields.texts("breaking_changes"),
        "track_usage": fields.flag("track_usage", True),
        "input_schema": _schema(fields, "input_schema", "inputs", stored=stored),
        "output_schema": _schema(fields, "output_schema", "outputs", stored=stored),
        "examples": _examples(fields),
        "constraints": _constraints(fields),
        "network": network,
        "cache": fields.flag("cache", not network),
        "timeout": _timeout(fields, data),
        "fallback_tool": fields.optional_text("fallback_tool") or _old_fallback(fields.rest),
        "requirements": fields.texts("requirements"),
    }
    if fields.problems:
        raise ToolError(fields.problems, file=file)
    for key in fields.rest:
        fields.warn(key, "not a key that is used")
    bodies: dict[str, Body] = {} if body is None else {kind.value: body}
    return Tool(
        id=tool_id,
        type=kind,
        **common,
        **bodies,  # type: ignore[arg-type]
        extra=fields.rest,
        folder=folder,
        files=tuple(fields.files),
        warnings=tuple(fields.warnings),
    )


def _id(fields: Fields, given: str | None) -> str:
    found = fields.optional_text("id") or given or ""
    if _ID.fullmatch(found) is None:
        fields.wrong("id", f"{found[:80]!r} is not an id; use letters, digits, `_`, `-`, `.` and `@`")
    return found


def _type(fields: Fields) -> ToolType:
    word = fields.text("type").strip().lower()
    word = _TYPE_WORDS.get(word, word)
    if word.startswith("stream_"):
        fields.rest["stream_type"] = word
        return ToolType.STREAM
    if word not in ToolType.__members__.values():
        said = f"{word[:40]!r} is not a type" if word else "it is missing"
        fields.wrong("type", f"{said}; use one of {', '.join(sorted(CALLABLE))}")
        return ToolType.CUSTOM
    return ToolType(word)


def _body(fields: Fields, kind: ToolType) -> Body | None:
    if kind not in CALLABLE:
        return None
    if kind is ToolType.FUNCTION and "function" not in fields.rest:
        return None
    return BODIES[kind](fields)


def _tier(fields: Fields, key: str, words: tuple[str, ...]) -> str | None:
    """A word that is not among `words` says nothing about a tool, but does not make it unusable."""
    found = fields.optional_text(key)
    if found is None:
        return None
    word = found.strip().lower().replace("_", "-").replace(" ", "-")
    word = _OTHER_WORDS.get(word, word)
    if word in words:
        return word
    fields.warn(key, f"{found[:40]!r} is none of {', '.join(words)}")
    return None


def _version(fields: Fields) -> str | None:
    """Three numbers; what is missing of them is 0, as in `1.2` or the number 2."""
    found = fields.optional_text("version")
    if found is None:
        return None
    parts = found.strip().removeprefix("v").split(".")
    version = ".".join([*parts, "0", "0"][:3] if len(parts) < 3 else parts)
    if is_semver(version):
        return version
    fields.warn("version", f"{found[:40]!r} is not three numbers, so it is left out")
    return None


def _change_type(fields: Fields) -> Bump | None:
    found = fields.optional_text("change_type")
    try:
        return None if found is None else Bump(found.strip().lower())
    except ValueError:
        fields.wrong("change_type", f"{found!r} is none of patch, minor and major")
        return None


def _schema(fields: Fields, key: str, old_key: str, *, stored: bool) -> dict[str, Any] | None:
    if stored:
        return fields.table(key) or None
    found = fields.take(key)
    if found is None and isinstance(fields.rest.get(old_key), list):
        key, found = old_key, fields.take(old_key)
    try:
        return to_json_schema(found)
    except Unreadable as error:
        fields.wrong(key, str(error))
        return None


def _examples(fields: Fields) -> tuple[Example, ...]:
    """Those that have an input. Others show a person how to use the tool; they are kept under `notes_on_use`."""
    found = fields.take("examples")
    listed = found if isinstance(found, list) else [] if found is None else [found]
    if len(listed) > _MOST_EXAMPLES:
        fields.wrong("examples", f"{len(listed)} are too many; a tool has at most {_MOST_EXAMPLES}")
    usable = [example for example in map(_example, listed) if example is not None]
    unusable = [each for each in listed if _example(each) is None]
    if unusable:
        fields.rest["notes_on_use"] = unusable
        fields.warn("examples", f"{len(unusable)} have no input, so they cannot be run")
    return tuple(usable)


def _example(found: Any) -> Example | None:
    if not isinstance(found, dict):
        return None
    given = found.get("input", found.get("inputs"))
    given = loaded_json(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        return None
    outputs = [found[key] for key in ("output", "outputs", "expected") if key in found]
    described = found.get("description")
    return Example(
        input=given,
        output=_answer(outputs[0]) if outputs else None,
        checked=bool(outputs),
        description=described if isinstance(described, str) else "",
    )


def _answer(found: Any) -> Any:
    """What a text that is a JSON object or list means: old files write answers as they were printed."""
    meant = loaded_json(found) if isinstance(found, str) else found
    return meant if isinstance(meant, dict | list) else found


def _constraints(fields: Fields) -> Constraints:
    inner = fields.inside("constraints")
    return Constraints(
        max_calls_per_hour=inner.whole("max_calls_per_hour", above=0, most=1_000_000),
        max_memory_mb=inner.whole("max_memory_mb", above=0, most=1_000_000),
        max_output_bytes=inner.whole("max_output_bytes", above=0, most=1_000_000_000),
        max_db_size_mb=inner.whole("max_db_size_mb", above=0, most=1_000_000),
        extra=inner.rest,
    )


def _timeout(fields: Fields, data: Mapping[str, Any]) -> float | None:
    """Of the tool, or as old files have it, of its program."""
    found = fields.number("timeout", above=0, most=_MOST_SECONDS)
    program = data.get("executable")
    if found is None and isinstance(program, dict) and "timeout" in program:
        found = Fields(program).number("timeout", above=0, most=_MOST_SECONDS)
    return None if found is None else float(found)


def _old_fallback(rest: Mapping[str, Any]) -> str | None:
    """The first tool of `fallback: {tools: […]}`."""
    found = rest.get("fallback")
    listed = found.get("tools") if isinstance(found, dict) else None
    return listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], str) else None
