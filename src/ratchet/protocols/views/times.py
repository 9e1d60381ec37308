"""Moments that may not have come."""

from __future__ import annotations

from ratchet.kernel import iso


def when(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else iso(milliseconds)
