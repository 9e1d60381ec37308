"""Reading what a forge sent: any field may be missing, of another type, or far too long; and its words for states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

from ratchet.forges.forge import CheckState

_PASSED = ("success", "passed", "ok")
_FAILED = ("failure", "failed", "error", "cancelled", "canceled", "timed_out", "action_required")
_PENDING = ("pending", "queued", "requested", "in_progress", "waiting", "running", "created", "scheduled")
_BOTH = {
    **dict.fromkeys(_PASSED, CheckState.PASSED),
    **dict.fromkeys(_FAILED, CheckState.FAILED),
    **dict.fromkeys(_PENDING, CheckState.PENDING),
    "skipped": CheckState.NEUTRAL,
}
_GITHUB = {
    **_BOTH,
    # GitHub itself takes it for a success.
    "neutral": CheckState.PASSED,
    "startup_failure": CheckState.FAILED,
    # It was never finished and nobody will.
    "stale": CheckState.FAILED,
    "expected": CheckState.PENDING,
    # Without a conclusion that says nothing yet.
    "completed": CheckState.PENDING,
}
_GITLAB = {
    **_BOTH,
    "preparing": CheckState.PENDING,
    "waiting_for_resource": CheckState.PENDING,
    "waiting_for_callback": CheckState.PENDING,
    "canceling": CheckState.PENDING,
    # Somebody has to press a button first.
    "manual": CheckState.PENDING,
}
CANCELLED = frozenset({"cancelled", "canceled"})


def github_state(word: str | None) -> CheckState | None:
    """Nothing for a word that is not known."""
    return None if word is None else _GITHUB.get(word.lower())


def gitlab_state(word: str | None, *, may_fail: bool = False) -> CheckState | None:
    """A job that may fail has not failed its pipeline."""
    state = None if word is None else _GITLAB.get(word.lower())
    return CheckState.NEUTRAL if state is CheckState.FAILED and may_fail else state


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
