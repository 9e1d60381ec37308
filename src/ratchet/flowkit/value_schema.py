"""JSON Schema as far as tools and answers of people use it. What this does not know is refused beforehand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

from .errors import SpecError
from .inputs import fits

_NOTES = frozenset(
    (
        *(
            "$schema",
            "$id",
            "$comment",
            "$defs",
            "definitions",
            "title",
            "description",
            "default",
            "examples",
        ),
        *("deprecated", "readOnly", "writeOnly", "format", "contentEncoding", "contentMediaType"),
    )
)
_CHECKED = frozenset(
    (
        *("$ref", "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "properties", "required"),
        *("additionalProperties", "minProperties", "maxProperties", "items", "prefixItems", "minItems"),
        *("maxItems", "uniqueItems", "minLength", "maxLength", "pattern", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    )
)
_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")
# What a schema raises that is none.
_BROKEN = (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError)
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_TABLES = ("properties", "$defs", "definitions")
_SCHEMAS = ("not", "items", "additionalProperties")
_LENGTHS: tuple[tuple[type[Sized], str, str], ...] = (
    (str, "minLength", "maxLength"),
    (list, "minItems", "maxItems"),
    (dict, "minProperties", "maxProperties"),
)


def unknown_keywords(schema: Any) -> set[str]:
    """The keywords of a schema that are not checked here."""
    if not isinstance(schema, Mapping):
        return set()
    found = set(schema) - _NOTES - _CHECKED
    if not str(schema.get("$ref", "#/")).startswith("#/"):
        found.add("$ref")
    for below in _schemas_below(schema):
        found |= unknown_keywords(below)
    return found


def schema_problems(schema: Mapping[str, Any]) -> Iterator[str]:
    """Why a schema cannot be checked here, if so."""
    unknown = unknown_keywords(schema)
    if unknown:
        yield f"{', '.join(sorted(map(str, unknown)))} cannot be checked"
        return
    for each in _all_schemas(schema):
        kinds = each.get("type", [])
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if kind not in _TYPES:
                yield f"there is no type {_shown(kind)}; there is {', '.join(_TYPES)}"
    try:
        for sample in (None, True, 0, "", [], [0], {}, {"a": 0}):
            next(mistakes(sample, schema), None)
    except (*_BROKEN, SpecError) as error:
        yield f"it is no JSON Schema: {type(error).__name__}: {error}"


def first_mistake(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Why a value does not fit, if so; also if that cannot be told."""
    try:
        return next(mistakes(value, schema), None)
    except SpecError as error:
        return str(error)
    except _BROKEN as error:
        return f"it cannot be checked against its schema: {type(error).__name__}: {error}"


def mistakes(value: Any, schema: Any, root: Any = None, place: str = "") -> Iterator[str]:
    """One sentence for each way in which `value` does not fit."""
    root = schema if root is None else root
    if schema is True or schema == {}:
        return
    if schema is False:
        yield f"{place or 'the value'} must not be there"
        return
    if "$ref" in schema:
        yield from mistakes(value, _referred(schema["$ref"], root), root, place)
    yield from _of_kind(value, schema, place)
    yield from _of_size(value, schema, place)
    yield from _of_choice(value, schema, root, place)
    if isinstance(value, dict):
        yield from _of_members(value, schema, root, place)
    if isinstance(value, list):
        yield from _of_items(value, schema, root, place)


def _of_kind(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    wanted = schema.get("type", [])
    kinds: list[str] = wanted if isinstance(wanted, list) else [wanted]
    if kinds and not any(_is_a(kind, value) for kind in kinds):
        yield f"{place or 'the value'} must be of type {' or '.join(kinds)}, not {_shown(value)}"
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        yield f"{place or 'the value'} must be one of {_shown(schema['enum'])}, not {_shown(value)}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{place or 'the value'} must be {_shown(schema['const'])}, not {_shown(value)}"


def _of_size(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    for kind, least, most in _LENGTHS:
        if isinstance(value, kind):
            low, size, high = schema.get(least, 0), len(value), schema.get(most, math.inf)
            if not low <= size <= high:
                yield f"{place or 'the value'} has the length {size}, which is not from {low} to {high}"
    if isinstance(value, str) and "pattern" in schema and not fits(value, schema["pattern"]):
        yield f"{place or 'the value'} must match {schema['pattern']}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _of_number(value, schema, place)


def _of_number(value: float, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    breaks: Mapping[str, Callable[[Any], bool]] = {
        "minimum": lambda bound: value < bound,
        "maximum": lambda bound: value > bound,
        "exclusiveMinimum": lambda bound: value <= bound,
        "exclusiveMaximum": lambda bound: value >= bound,
        "multipleOf": lambda bound: not math.isclose(value / bound, round(value / bound), abs_tol=1e-9),
    }
    for keyword, broken in breaks.items():
        if keyword in schema and broken(schema[keyword]):
            yield f"{place or 'the value'} is {_shown(value)}, which breaks {keyword} {schema[keyword]}"


def _of_choice(value: Any, schema: Mapping[str, Any], root: Any, place: str) -> Iterator[str]:
    for each in schema.get("allOf", ()):
        yield from mistakes(value, each, root, place)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            fitting = sum(next(mistakes(value, each, root, place), None) is None for each in schema[keyword])
            if fitting == 0 or (keyword == "oneOf" and fitting > 1):
                yield f"{place or 'the value'} fits {fitting} of the schemas of {keyword}"
    if "not" in schema and next(mistakes(value, schema["not"], root, place), None) is None:
        yield f"{place or 'the value'} must not be {_shown(value)}"


def _of_members(value: Mapping[str, Any], schema: Mapping[str, Any], root: Any, place: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place + ': ' if place else ''}{name!r} is required"
    for name, member in value.items():
        inside = f"{place}.{name}" if place else name
        if name in known:
            yield from mistakes(member, known[name], root, inside)
        elif schema.get("additionalProperties") is False:
            yield f"{inside} is not known here"
        elif "additionalProperties" in schema:
            yield from mistakes(member, schema["additionalProperties"], root, inside)


def _of_items(value: list[Any], schema: Mapping[str, Any], root: Any, place: str) -> Iterator[str]:
    first = schema.get("prefixItems", [])
    for index, item in enumerate(value):
        below = first[index] if index < len(first) else schema.get("items", True)
        yield from mistakes(item, below, root, f"{place}[{index}]")
    if schema.get("uniqueItems") and len({_known_by(item) for item in value}) < len(value):
        yield f"{place or 'the list'} has an item twice"


def _is_a(kind: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "integer":
            return number and float(value).is_integer()
        case "number":
            return number
        case "null":
            return value is None
    known = {"string": str, "boolean": bool, "object": dict, "array": list}
    return kind in known and isinstance(value, known[kind])


def _same(one: Any, other: Any) -> bool:
    return bool(_known_by(one) == _known_by(other))


def _known_by(value: Any) -> Any:
    """Equal for what is equal as JSON: 1 is 1.0, and true is not 1."""
    if isinstance(value, list):
        return ("list", *map(_known_by, value))
    if isinstance(value, dict):
        return ("object", *sorted((name, _known_by(each)) for name, each in value.items()))
    return (type(value).__name__ if isinstance(value, bool) else "", value)


def _referred(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def _all_schemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, Mapping):
        yield schema
        for below in _schemas_below(schema):
            yield from _all_schemas(below)


def _schemas_below(schema: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in _SCHEMA_LISTS:
        yield from schema.get(keyword, ())
    for keyword in _SCHEMA_TABLES:
        yield from schema.get(keyword, {}).values()
    for keyword in _SCHEMAS:
        if keyword in schema:
            yield schema[keyword]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}…"
