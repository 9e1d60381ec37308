"""Which key was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.config.sources import Key, dotted


def most_like(key: Key, candidates: Iterable[Key]) -> Key:
    """The one of the candidates that is spelled most like `key`."""
    # Only an error needs it, and it is slow to import.
    from difflib import SequenceMatcher

    def likeness(candidate: Key) -> float:
        whole = SequenceMatcher(None, dotted(key), dotted(candidate)).ratio()
        last = SequenceMatcher(None, key[-1], candidate[-1]).ratio()
        return whole + last

    return max(candidates, key=likeness)
