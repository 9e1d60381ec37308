"""What a research run may be called."""

from __future__ import annotations

from ratchet.kernel import Misuse

_LONGEST = 200


def check_name(name: str) -> None:
    """Raises `Misuse` for a name that cannot be told from a number, or not be shown on a line."""
    if not name.strip() or name.isdigit() or not name.isprintable() or len(name) > _LONGEST:
        raise Misuse(f"a run cannot be called {name[:_LONGEST]!r}", hint="use a word; numbers are run ids")
