"""Reading what somebody else wrote: any field may be missing, of another type, or far too long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

Value = TypeVar("Value")
_MOST_ITEMS = 500
_LARGEST = 2**63 - 1
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_WRITTEN = ("%Y-%m-%d %H:%M:%S %z", "%Y-%m-%d %H:%M:%S UTC")


def part(value: Any) -> Mapping[str, Any]:
    """An object; an empty one in place of anything else."""
    return value if isinstance(value, dict) else _NOTHING


def items(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list, the first few hundred."""
    return [each for each in value[:_MOST_ITEMS] if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: Any, most: int = 500) -> str | None:
    """A text that says something, cut to `most` characters."""
    return value.strip()[:most] or None if isinstance(value, str) else None


def tail(value: Any, most: int = 8000) -> str | None:
    """The end of a text."""
    return value.rstrip()[-most:] or None if isinstance(value, str) else None


def number(value: Any) -> int | None:
    """A whole number that can be that of something."""
    return value if type(value) is int and 0 < value <= _LARGEST else None


def link(value: Any) -> str | None:
    """An address that a browser may be sent to."""
    found = text(value, 2000)
    return found if found is not None and found.lower().startswith(("https://", "http://")) else None


def commit(value: Any) -> str | None:
    """The full name of a commit. The one of zeros stands for none."""
    found = value.lower() if isinstance(value, str) and len(value) <= 64 else ""
    return found if _COMMIT.fullmatch(found) and found.strip("0") else None


def moment(value: Any) -> int | None:
    """A time in whole milliseconds, from any of the ways in which forges write it."""
    found = text(value, 64)
    if found is None:
        return None
    for read in (datetime.fromisoformat, *(_reader(form) for form in _WRITTEN)):
        try:
            at = read(found)
            whole = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        except (ValueError, OverflowError):
            continue
        return whole if 0 < whole <= _LARGEST else None
    return None


def _reader(form: str) -> Any:
    return lambda written: datetime.strptime(written, form)  # noqa: DTZ007 - the caller takes it for UTC


def first(*values: Value | None) -> Value | None:
    """The first of several that is there."""
    return next((each for each in values if each is not None), None)
