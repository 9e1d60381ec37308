"""What was left out of this installation, and the line that adds it."""

from __future__ import annotations

from ratchet.doctor.check import Check
from ratchet.extras import PURPOSES, find_extra, install_line


def extras() -> list[Check]:
    """One check for each extra. None is needed by all: one that is absent is well, and says how to have it."""
    return [_check(name) for name in PURPOSES]


def _check(name: str) -> Check:
    extra = find_extra(name)
    if not extra.absent:
        return Check(f"extra {name}", "ok", f"installed, for {extra.purpose}")
    return Check(f"extra {name}", "ok", f"not installed; it is for {extra.purpose}: {install_line(name)}")
