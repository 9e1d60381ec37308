"""Schemas of inputs and outputs: whatever a file has, it becomes JSON Schema.

Besides JSON Schema there are three older forms: a table of names with a type in words (`{a: "number - the first"}`), a
table of names with a table each (`{a: {type: number, required: true}}`), and a list of such tables with a `name`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from ratchet.tools.definition_file import UnreadableDefinition

_TYPES = {
    "string": "string",
    "str": "string",
    "text": "string",
    "number": "number",
    "float": "number",
    "double": "number",
    "integer": "integer",
    "int": "integer",
    "boolean": "boolean",
    "bool": "boolean",
    "object": "object",
    "dict": "object",
    "map": "object",
    "json": "object",
    "array": "array",
    "list": "array",
    "null": "null",
    "none": "null",
}
_ANYTHING = frozenset({"any", "mixed", "unknown"})
# What only a schema has: a table with one of these is not a table of inputs.
_SCHEMA_KEYS = frozenset({"$schema", "$ref", "properties", "anyOf", "oneOf", "allOf", "$defs", "definitions"})
_PARTS = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"}
)
_ABOUT = frozenset({"description", "title", "default", "examples", "example", "enum", "const"})
_NOT_KEYWORDS = frozenset({"required", "optional", "name", "example"})
_IN_WORDS = re.compile(r"\s*([A-Za-z_]+)[^-]*(?:-\s*(.*))?", re.DOTALL)
_DEEPEST = 20


def to_json_schema(found: Any) -> dict[str, Any] | None:
    """The JSON Schema that `found` means, or `None` for nothing at all. Raises `UnreadableDefinition`.

    What is not marked as required may be left out, for so the older forms were used.
    """
    if isinstance(found, str):
        found = _in_words(found)
    if isinstance(found, list):
        found = _table_of(found)
    if not found:
        return None
    if not isinstance(found, dict):
        raise UnreadableDefinition(f"{found!r} is not a schema")
    schema = _mended(found) if _is_schema(found) else _from_table(found)
    _check(schema)
    return schema


def _is_schema(found: Mapping[str, Any]) -> bool:
    """`{type: string, enum: […]}` is one; `{type: {…}, size: {…}}` and `{type: "str - …", size: "int"}` are inputs."""
    if not _SCHEMA_KEYS.isdisjoint(found):
        return True
    if found.keys() <= _ABOUT:
        return not any(_looks_like_input(value) for value in found.values())
    kind = found.get("type")
    named = isinstance(kind, str) and (kind.lower() in _TYPES or kind.lower() in _ANYTHING)
    others = [value for key, value in found.items() if key != "type" and key not in _PARTS]
    return (named or isinstance(kind, list)) and not any(_looks_like_input(value) for value in others)


def _looks_like_input(value: Any) -> bool:
    if isinstance(value, str):
        return "type" in _in_words(value) and (value.lower() in _TYPES or " - " in value)
    return isinstance(value, dict) and "type" in value and "properties" not in value and "items" not in value


def _from_table(table: Mapping[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    for name, found in table.items():
        if isinstance(found, str):
            properties[name] = _in_words(found)
        elif isinstance(found, dict):
            properties[name] = _mended(found)
            if _says_required(found):
                required.append(name)
        elif isinstance(found, list):
            properties[name] = {"type": "array"}
        else:
            raise UnreadableDefinition(f"{name}: {found!r} is not a type")
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _table_of(listed: list[Any]) -> dict[str, Any]:
    """The table that a list of inputs means, each a name or a table with one."""
    table: dict[str, Any] = {}
    for each in listed:
        if isinstance(each, str):
            table[each] = {}
        elif isinstance(each, dict) and isinstance(each.get("name"), str):
            table[each["name"]] = {key: value for key, value in each.items() if key != "name"}
        else:
            raise UnreadableDefinition(f"{each!r} has no name")
    return {"properties": {}} | _from_table(table) if table else {}


def _in_words(text: str) -> dict[str, Any]:
    """The schema of `number - the first operand`, or of a type alone. Other words are a description."""
    found = _IN_WORDS.fullmatch(text)
    kind = found.group(1).lower() if found else ""
    if found is None or (kind not in _TYPES and kind not in _ANYTHING):
        return {"description": text.strip()} if text.strip() else {}
    schema = {"type": _TYPES[kind]} if kind in _TYPES else {}
    return schema | ({"description": found.group(2).strip()} if found.group(2) else {})


def _mended(found: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """A schema in which older words for types, and `required` beside a type, are as JSON Schema has them."""
    if depth > _DEEPEST:
        raise UnreadableDefinition(f"it is more than {_DEEPEST} deep")
    schema = {key: value for key, value in found.items() if key not in _NOT_KEYWORDS}
    if isinstance(found.get("required"), list):
        schema["required"] = found["required"]
    if "example" in found:
        schema.setdefault("examples", [found["example"]])
    kind = schema.get("type")
    if isinstance(kind, str) and kind not in _TYPES.values():
        del schema["type"]
        schema = _in_words(kind) | schema
    if isinstance(schema.get("properties"), dict):
        schema["properties"] = {name: _part(each, depth) for name, each in schema["properties"].items()}
        required = [name for name, each in found["properties"].items() if _says_required(each)]
        if required and "required" not in schema:
            schema["required"] = required
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict | str):
            schema[key] = _part(schema[key], depth)
    return schema


def _says_required(found: Any) -> bool:
    return isinstance(found, dict) and found.get("required") is True and "default" not in found


def _part(found: Any, depth: int) -> Any:
    if isinstance(found, str):
        return _in_words(found)
    return _mended(found, depth + 1) if isinstance(found, dict) else found


def _check(schema: Mapping[str, Any]) -> None:
    wrong = _fault(json.dumps(schema, sort_keys=True))
    if wrong is not None:
        raise UnreadableDefinition(wrong)


@functools.lru_cache(maxsize=1024)
def _fault(schema: str) -> str | None:
    """What keeps a text from being a JSON Schema. It takes milliseconds to find out, and many tools share one."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        return f"{where + ': ' if where else ''}{error.message[:200]}"
    return None
