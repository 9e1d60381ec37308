"""Finding values in JSON by a path: names and indices with dots between them.

`*` stands for any name or index, and `+` adds what a further path finds: `models.*.tokens.in+models.*.tokens.cached`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def found(document: Any, path: str) -> list[Any]:
    """Everything that the path leads to; nothing where it leads nowhere or to null."""
    return [
        value for each in path.split("+") for value in _along(document, each.split(".")) if value is not None
    ]


def _along(value: Any, parts: list[str]) -> Iterator[Any]:
    if not parts:
        yield value
        return
    first, *rest = parts
    for step in _steps(value, first):
        yield from _along(step, rest)


def _steps(value: Any, part: str) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values()) if part == "*" else [value[part]] if part in value else []
    if isinstance(value, list):
        if part == "*":
            return value
        return [value[int(part)]] if part.isdecimal() and int(part) < len(value) else []
    return []
