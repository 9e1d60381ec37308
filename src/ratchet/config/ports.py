"""Which ports a server tries."""

from __future__ import annotations

from ratchet.config.load import Loaded

_NEXT = 20


def ports_to_try(loaded: Loaded, key: str) -> tuple[int, ...]:
    """The port that somebody asked for and no other; otherwise the usual one, those after it, and any free one (0)."""
    section, name = key.split(".")
    port: int = getattr(getattr(loaded.settings, section), name)
    return (port,) if loaded.is_set(key) else (*range(port, port + _NEXT), 0)
