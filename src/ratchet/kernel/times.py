"""Moments as programs read them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(milliseconds: int) -> str:
    """Whole milliseconds since 1970 as `2026-07-31T20:11:44.123Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
