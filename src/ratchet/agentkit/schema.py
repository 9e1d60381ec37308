"""Whether a state is what its JSON Schema says; of a change, only what it changed is looked at where that is enough."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agentkit.errors import SchemaInvalid, StateInvalid
from ratchet.agentkit.files import read_whole

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_MOST_BYTES = 4 * 1024 * 1024
_SHOWN_CHARS = 300
_NOTES = frozenset(("$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "examples"))
# What these say of one property, they say whatever the others are.
_EACH = frozenset(("properties", "patternProperties", "additionalProperties", "propertyNames"))
_OBJECT = _EACH | _NOTES | {"type", "required", "default"}
# The same for the items of a list.
_ARRAY = _NOTES | {"type", "items", "maxItems", "minItems", "default"}
_UNIQUE = "uniqueItems"
Fault = tuple[str, str]


def check_state(state: dict[str, Any], path: Path) -> None:
    """Raise `StateInvalid` if `state` is not what the schema at `path` says, `SchemaInvalid` if that says nothing."""
    _raise(first_fault(state, _read(path)), path)


def first_fault(value: Any, schema: bytes) -> Fault | None:
    """Where and why a value is not what a schema says. Raises `SchemaInvalid`."""
    return _worst(_validator(schema).iter_errors(value))


def check_change(
    changed: Mapping[str, Any], removed: Collection[str], whole: Callable[[], dict[str, Any]], path: Path
) -> None:
    """Check a state in which these keys are `changed` and `removed`. `whole` gives all of it, if it must be seen."""
    validator = _validator(_read(path))
    schema = validator.schema
    if not (isinstance(schema, dict) and schema.keys() <= _OBJECT and _allows(schema, "object")):
        _raise(_worst(validator.iter_errors(whole())), path)
        return
    missing = [key for key in schema.get("required", ()) if key in removed]
    if missing:
        _raise(("", f"{missing[0]!r} is a required property"), path)
    # Made from the whole schema, this one still finds there what is referred to.
    part = validator.evolve(schema={name: schema[name] for name in schema.keys() & _EACH})
    _raise(_worst(part.iter_errors(dict(changed))), path)


def check_item(
    key: str, length: int, item: Any, *, unique: bool, whole: Callable[[], dict[str, Any]], path: Path
) -> None:
    """Check a state whose list at `key` has got `item` behind `length` others; `unique` if it is none of them."""
    validator = _validator(_read(path))
    schema = validator.schema
    rules = _rules(schema, key) if isinstance(schema, dict) and schema.keys() <= _OBJECT else None
    known = _ARRAY | {_UNIQUE} if unique else _ARRAY
    if rules is None or not (rules.keys() <= known and _allows(rules, "array")) or length == 0:
        check_change({key: whole()[key]}, (), whole, path)
        return
    if length >= rules.get("maxItems", length + 1):
        _raise((f".{key}", f"has more than {rules['maxItems']} items"), path)
    items = rules.get("items", True)
    if isinstance(items, list):
        check_change({key: whole()[key]}, (), whole, path)
        return
    fault = _worst(validator.evolve(schema=items).iter_errors(item))
    _raise(None if fault is None else (f".{key}[{length}]{fault[0]}", fault[1]), path)


def _rules(schema: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """All that is said of one property, if that is simple."""
    if "patternProperties" in schema or "propertyNames" in schema:
        return None
    said = schema.get("properties", {}).get(key, schema.get("additionalProperties", True))
    return {} if said is True else said if isinstance(said, dict) else None


def _allows(schema: Mapping[str, Any], kind: str) -> bool:
    said = schema.get("type", kind)
    return said == kind or (isinstance(said, list) and kind in said)


def _read(path: Path) -> bytes:
    raw = read_whole(path, _MOST_BYTES)
    if raw is None:
        raise SchemaInvalid(f"{path} does not exist", hint="write a JSON Schema there; {} allows every state")
    return raw


def _raise(fault: Fault | None, path: Path) -> None:
    if fault is not None:
        where, what = fault
        raise StateInvalid(f"is refused by {path.name}: {what}", path=f"state{where}")


def _worst(errors: Iterable[ValidationError] | Iterator[ValidationError]) -> Fault | None:
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(iter(errors))
    except (Unresolvable, re.error, RecursionError) as broken:
        raise SchemaInvalid(f"the schema cannot be followed: {broken}"[:_SHOWN_CHARS]) from broken
    if error is None:
        return None
    where = error.json_path.removeprefix("$")
    return where[:_SHOWN_CHARS], error.message[:_SHOWN_CHARS]


@functools.lru_cache(maxsize=8)
def _validator(raw: bytes) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing.jsonschema import EMPTY_REGISTRY

    try:
        schema = json.loads(raw)
        if not isinstance(schema, dict):
            raise SchemaInvalid("the schema is no object", hint="write a JSON Schema; {} allows everything")
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
    except SchemaError as error:
        raise SchemaInvalid(f"the schema is no JSON Schema: {error.message[:_SHOWN_CHARS]}") from error
    except (ValueError, RecursionError) as error:
        raise SchemaInvalid(f"the schema is not JSON: {error}") from error
    # Only what the schema itself holds: a reference to elsewhere must not be fetched.
    return kind(schema, registry=EMPTY_REGISTRY)
