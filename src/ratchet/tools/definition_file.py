"""The file of a definition: bounded YAML or JSON from any author, and its keys by name and type."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse, shortened

MOST_BYTES = 1024 * 1024
MOST_VALUES = 50_000
DEEPEST = 50


class ToolError(Misuse):
    """A definition that cannot be used. `problems` has one sentence for each thing that is wrong, with its key."""

    def __init__(self, problems: list[str], *, file: str | None = None) -> None:
        where = f"{file}: " if file else ""
        super().__init__(where + "; ".join(problems), hint="correct the definition of the tool")
        self.problems = problems
        self.file = file


class UnreadableDefinition(Exception):
    """One value that is not what it should be; becomes a problem of its key."""


class DefinitionFields:
    """The keys of one mapping. `rest` has those that were not read."""

    def __init__(self, data: Mapping[str, Any], *, folder: Path | None = None) -> None:
        self.rest = dict(data)
        self.folder = folder
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.files: list[str] = []
        """Files of the folder that were read."""
        self._under = ""

    def take(self, key: str) -> Any:
        return self.rest.pop(key, None)

    def wrong(self, key: str, what: str) -> None:
        """Say what makes the definition unusable."""
        self.problems.append(f"{self._under}{key}: {what}")

    def warn(self, key: str, what: str) -> None:
        """Say what is odd, but does no harm."""
        self.warnings.append(f"{self._under}{key}: {what}")

    def text(self, key: str, default: str = "") -> str:
        """Numbers and truth values count as their text: YAML makes them of words that look like one."""
        return self.optional_text(key) or default

    def optional_text(self, key: str) -> str | None:
        found = self.take(key)
        if found is None or isinstance(found, str):
            return found
        if isinstance(found, bool):
            return "true" if found else "false"
        if isinstance(found, int | float):
            return str(found)
        self.wrong(key, f"{_shown(found)} is not a text")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; one text counts as a list of one."""
        found = self.take(key)
        if found is None:
            return ()
        listed = found if isinstance(found, list) else [found]
        if any(isinstance(each, list | dict) or each is None for each in listed):
            self.wrong(key, f"{_shown(found)} is not a list of texts")
            return ()
        return tuple(each if isinstance(each, str) else _plain_text(each) for each in listed)

    def flag(self, key: str, default: bool) -> bool:
        found = self.take(key)
        if found is None or isinstance(found, bool):
            return default if found is None else found
        self.wrong(key, f"{_shown(found)} is neither true nor false")
        return default

    def number(self, key: str, *, above: float | None = None, most: float | None = None) -> float | None:
        found = self.take(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            self.wrong(key, f"{_shown(found)} is not a number")
        elif above is not None and found <= above:
            self.wrong(key, f"{_shown(found)} must be above {above:g}")
        elif most is not None and found > most:
            self.wrong(key, f"{_shown(found)} must be at most {most:g}")
        else:
            return found
        return None

    def whole(self, key: str, *, above: int | None = None, most: int | None = None) -> int | None:
        found = self.number(key, above=above, most=most)
        if found is not None and found != int(found):
            self.wrong(key, f"{_shown(found)} is not a whole number")
            return None
        return None if found is None else int(found)

    def table(self, key: str) -> dict[str, Any]:
        found = self.take(key)
        if found is None or isinstance(found, dict):
            return found or {}
        self.wrong(key, f"{_shown(found)} is not a table")
        return {}

    def inside(self, key: str) -> DefinitionFields:
        """The fields of the table under `key`; what is wrong with them is wrong with the whole."""
        inner = DefinitionFields(self.table(key), folder=self.folder)
        inner.problems, inner.warnings, inner.files = self.problems, self.warnings, self.files
        inner._under = f"{self._under}{key}."
        return inner


def _plain_text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return shortened(text, 60)


def read_bytes(path: Path, within: Path, *, most: int = MOST_BYTES) -> bytes:
    """What is in a file that lies within a folder, also after following links. Raises `UnreadableDefinition`."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(within.resolve()):
            raise UnreadableDefinition(f"{path} leads out of {within}")
        # Not blocking: opening a pipe without a writer would wait for ever.
        with os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableDefinition(f"{path} is not a file")
            raw = file.read(most + 1)
    except (OSError, RuntimeError) as error:
        raise UnreadableDefinition(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    if len(raw) > most:
        raise UnreadableDefinition(f"{path} is larger than {most:,} bytes")
    return raw


def read_text(path: Path, within: Path) -> str:
    """The text of such a file; a mark of its encoding at the start is left out."""
    try:
        return read_bytes(path, within).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableDefinition(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error


def loaded_yaml(text: str) -> Any:
    """The value that a YAML document has, as JSON has values. Raises `UnreadableDefinition`."""
    # Loaded here: a definition that has not changed is not read.
    from ratchet.tools.yaml_document import load

    return _plain(load(text))


def loaded_json(text: str) -> Any:
    """The value of a JSON text, or `None` if it is none."""
    try:
        return _plain(json.loads(text))
    except (ValueError, RecursionError, UnreadableDefinition):
        return None


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON has it."""
    if depth > DEEPEST:
        raise UnreadableDefinition(f"it is more than {DEEPEST} deep")
    if isinstance(value, dict):
        return {_key(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise UnreadableDefinition(f"{value} is not a number that JSON has")
    if value is None or isinstance(value, str | int | float):
        return value
    raise UnreadableDefinition(f"a value of type {type(value).__name__} is not one that JSON has")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    raise UnreadableDefinition(f"{str(key)[:60]!r} cannot be a key")


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
_DEEPEST_SCHEMA = 20


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
    if depth > _DEEPEST_SCHEMA:
        raise UnreadableDefinition(f"it is more than {_DEEPEST_SCHEMA} deep")
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
