"""A value that a JSON schema allows, as plain as possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def sample(schema: Mapping[str, Any]) -> Any:
    """The first allowed value of each required member. Schemas of tools are plain; what is more is not understood."""
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    for listed in ("enum", "examples"):
        if schema.get(listed):
            return schema[listed][0]
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            members = schema.get("properties", {})
            return {name: sample(members.get(name, {})) for name in schema.get("required", ())}
        case "array":
            return [sample(schema.get("items", {}))] * schema.get("minItems", 0)
        case "string":
            return "x" * schema.get("minLength", 1)
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return True
    return None
