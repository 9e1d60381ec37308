"""Moments as people read them. The ledger keeps whole milliseconds since 1970."""

from __future__ import annotations

import time
from datetime import datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def clock(milliseconds: int) -> str:
    """Local time: `2026-07-31 22:11:44`"""
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(milliseconds: int | None, now: float | None = None) -> str | None:
    """`5m ago`, `in 2h`, `now`; nothing for a moment that has not come."""
    if milliseconds is None:
        return None
    seconds = (time.time() if now is None else now) - milliseconds / 1000
    for length, unit in _UNITS:
        if abs(seconds) >= length:
            count = f"{int(abs(seconds) // length)}{unit}"
            return f"{count} ago" if seconds > 0 else f"in {count}"
    return "now"


def age_of(moment: str | None) -> str | None:
    """The same for a moment in ISO 8601."""
    return None if moment is None else age(int(datetime.fromisoformat(moment).timestamp() * 1000))


def span(start: int | None, end: int | None) -> str | None:
    """How long something took: `1.2s`, `3m 20s`. Up to now when it has not ended."""
    if start is None:
        return None
    seconds = max(0.0, (time.time() if end is None else end / 1000) - start / 1000)
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m {rest}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"
