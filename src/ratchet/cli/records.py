"""Values of the ledger as JSON: the same keys everywhere, times in ISO 8601."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ratchet.kernel import iso

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def record(item: DataclassInstance, *, without: Iterable[str] = ()) -> dict[str, Any]:
    """A dataclass as an object; whole milliseconds under `at` and `…_at` become ISO times."""
    names = [each.name for each in fields(item) if each.name not in set(without)]
    return {name: _value(name, getattr(item, name)) for name in names}


def print_document(document: Any) -> None:
    """One JSON document, laid out for reading."""
    print(json.dumps(document, indent=2, default=str))


def print_line(document: Any) -> None:
    """One JSON document on one line, at once: somebody may be waiting for it."""
    print(json.dumps(document, separators=(",", ":"), default=str), flush=True)


def _value(name: str, value: Any) -> Any:
    is_time = name == "at" or name.endswith("_at")
    return iso(value) if is_time and isinstance(value, int) else value
