"""The defaults that a JSON Schema declares, filled in where a value leaves them out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

# A schema may refer to itself, and so may a default lead back to its own.
_DEEPEST = 100


def with_defaults(value: Any, schema: Any) -> Any:
    """`value` with the defaults of `schema` for the properties that it lacks, in objects inside of it as well.

    What is there stays; a null counts as left out where the type of its property has none, since that is what a
    workflow passes on for an input that was not given. An object that is not there is made only by a default of its
    own. Alternatives (`anyOf`, `oneOf`) are left alone: which one is meant is not known before the value is complete.
    """
    return _filled(value, schema, schema, _DEEPEST)


def _filled(value: Any, schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or not depth or not isinstance(value, dict | list):
        return value
    if isinstance(reference := schema.get("$ref"), str):
        value = _filled(value, _referred(reference, root), root, depth - 1)
    for each in _list(schema.get("allOf")):
        value = _filled(value, each, root, depth - 1)
    if isinstance(value, list):
        first = _list(schema.get("prefixItems"))
        below = [*first, *[schema.get("items")] * (len(value) - len(first))]
        return [_filled(item, each, root, depth - 1) for item, each in zip(value, below, strict=False)]
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return value
    filled = dict(value)
    for name, each in properties.items():
        if _is_left_out(filled, name, each) and (declared := _declared(each, root)) is not None:
            filled[name] = copy.deepcopy(declared[0])
        if name in filled:
            filled[name] = _filled(filled[name], each, root, depth - 1)
    return filled


def _is_left_out(value: Mapping[str, Any], name: str, schema: Any) -> bool:
    if name not in value:
        return True
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    return value[name] is None and kinds is not None and kinds != "null" and "null" not in _list(kinds)


def _declared(schema: Any, root: Any) -> tuple[Any] | None:
    """The default of one property, which may be null; nothing if it has none."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return None
        if "default" in schema:
            return (schema["default"],)
        schema = _referred(schema.get("$ref"), root)
    return None


def _referred(reference: Any, root: Any) -> Any:
    """What a reference inside the document leads to; nothing for one that leads nowhere, which a check will name."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = root
    for part in filter(None, reference.removeprefix("#").split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
