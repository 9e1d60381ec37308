"""Whether a value is as a schema wants it, and what of it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.inputs import fits

Look = Callable[[Any], bool]
"""True only for what certainly fits."""

_MOST_KNOWN = 1024
# By the identity of a schema, which is kept so that no other one can get the same.
_known: dict[int, tuple[Mapping[str, Any], Look]] = {}
_ABOUT = frozenset({"title", "description", "default", "examples", "$schema", "$id", "$comment"})


def misfit(value: Any, schema: Mapping[str, Any] | None) -> str | None:
    """What of `value` is not as `schema` wants it, with the path of each part; nothing if it fits."""
    if not schema or _look_for(schema)(value):
        return None
    # Loaded here: most values fit at the first look.
    from ratchet.engines.engine import misfits

    return misfits(value, _one_dialect(schema), judge=_careful_judge())


def _look_for(schema: Mapping[str, Any]) -> Look:
    known = _known.get(id(schema))
    if known is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        known = _known[id(schema)] = (schema, _look(schema))
    return known[1]


def _one_dialect(schema: Any) -> Any:
    """`schema` without the dialects that it names: for each the library would take a validator of its own."""
    if isinstance(schema, Mapping):
        return {
            name: _one_dialect(each)
            for name, each in schema.items()
            if name != "$schema" or not isinstance(each, str)
        }
    return [_one_dialect(each) for each in schema] if isinstance(schema, list) else schema


def _look(schema: Any) -> Look:
    """A quick look for one schema; one that has more to say than this knows is never certain."""
    if schema is True:
        return _certain
    if not isinstance(schema, Mapping):
        return _uncertain
    words = schema.keys() - _ABOUT
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        return _uncertain if words else _certain
    if words == {"type"}:
        return _KINDS[kind]
    if kind == "object" and words <= {"type", "properties", "required", "additionalProperties"}:
        return _object_look(schema)
    if kind == "array" and words == {"type", "items"}:
        each = _look(schema["items"])
        return lambda value: isinstance(value, list) and all(map(each, value))
    return _uncertain


def _object_look(schema: Mapping[str, Any]) -> Look:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    others = schema.get("additionalProperties", True)
    if (
        not isinstance(properties, Mapping)
        or not isinstance(required, list | tuple)
        or not isinstance(others, bool)
    ):
        return _uncertain
    looks = {name: _look(each) for name, each in properties.items()}
    beyond = _certain if others else _uncertain

    def look(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and all(name in value for name in required)
            and all(looks.get(name, beyond)(each) for name, each in value.items())
        )

    return look


def _certain(_: Any) -> bool:
    return True


def _uncertain(_: Any) -> bool:
    return False


_KINDS: Mapping[str, Look] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}


@cache
def _careful_judge() -> Any:
    """A validator that gives no pattern the time to keep this process busy: the author of a tool wrote its patterns."""
    # Slow to import, and most calls fit at the first look.
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def pattern(_: Any, wanted: str, value: Any, __: Any) -> Iterator[ValidationError]:
        if not isinstance(value, str):
            return
        try:
            found = fits(value, wanted)
        except SpecError as error:
            yield ValidationError(str(error))
            return
        if not found:
            yield ValidationError(f"{value!r} does not match {wanted!r}")

    def refused(_: Any, __: Any, ___: Any, ____: Any) -> Iterator[ValidationError]:
        yield ValidationError("the schema of a tool cannot have patternProperties")

    words = {"pattern": pattern, "patternProperties": refused}
    return extend(Draft202012Validator, words)  # type: ignore[no-untyped-call]
