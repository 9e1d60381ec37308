"""Parts of a JSON document."""

from __future__ import annotations

import json
from typing import Any


def run(data: Any, path: str = "", where: dict[str, Any] | None = None) -> dict[str, Any]:
    """`path` leads down by names and numbers; `*` is each of a list. `where` keeps those that have its values."""
    found = [json.loads(data) if isinstance(data, str) else data]
    for part in filter(None, path.split(".")):
        found = [inner for value in found for inner in _step(value, part)]
    if where is not None:
        found = [value for value in found if isinstance(value, dict) and where.items() <= value.items()]
    return {"matches": found, "count": len(found)}


def _step(value: Any, part: str) -> list[Any]:
    if part == "*":
        return (
            list(value.values())
            if isinstance(value, dict)
            else list(value)
            if isinstance(value, list)
            else []
        )
    if isinstance(value, dict):
        return [value[part]] if part in value else []
    if isinstance(value, list) and part.lstrip("-").isdecimal() and -len(value) <= int(part) < len(value):
        return [value[int(part)]]
    return []
