"""Another form of the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OPERATIONS: dict[str, Callable[[str], str]] = {
    "upper": str.upper,
    "lower": str.lower,
    "title": str.title,
    "capitalize": str.capitalize,
    "reverse": lambda text: text[::-1],
    "trim": str.strip,
    "remove_spaces": lambda text: text.replace(" ", ""),
    "one_line": lambda text: " ".join(text.split()),
}


def run(text: str, operation: str) -> dict[str, Any]:
    return {"result": _OPERATIONS[operation](text), "operation": operation, "original": text}
