"""Whether a state is what its schema says."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agentkit.errors import SchemaInvalid, StateInvalid
from ratchet.agentkit.files import read_whole

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_MOST_BYTES = 4 * 1024 * 1024
_SHOWN_CHARS = 300


def check_state(state: dict[str, Any], path: Path) -> None:
    """Raise `StateInvalid` if `state` is not what the schema at `path` says, `SchemaInvalid` if that says nothing."""
    raw = read_whole(path, _MOST_BYTES)
    if raw is None:
        raise SchemaInvalid(f"{path} does not exist", hint="write a JSON Schema there; {} allows every state")
    found = first_fault(state, raw)
    if found is not None:
        where, what = found
        raise StateInvalid(f"is refused by {path.name}: {what}", path=f"state{where}")


def first_fault(value: Any, schema: bytes) -> tuple[str, str] | None:
    """Where and why a value is not what a schema says. Raises `SchemaInvalid`."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(_validator(schema).iter_errors(value))
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
