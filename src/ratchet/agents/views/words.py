"""Texts of engines and of whoever gives feedback, no longer than a program wants to be sent."""

from __future__ import annotations

LONGEST = 4_000
_CUT = " …"


def bounded(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else f"{text[:LONGEST]}{_CUT}"
