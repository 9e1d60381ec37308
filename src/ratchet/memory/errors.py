"""What can go wrong with a memory, as types."""

from __future__ import annotations

from ratchet.kernel import RatchetError


class MemoryFault(RatchetError):
    """The memory cannot be used as it is."""

    http_status = 503


class MemoryCorrupt(MemoryFault):
    """The memory is damaged, or something else is in its place."""


class MemoryTooNew(MemoryFault):
    """The memory was written by a newer Ratchet."""


class MemoryUnavailable(MemoryFault):
    """The memory cannot be reached, is read-only, or its disk is full."""


class WrongEmbedder(MemoryFault):
    """The vectors of the memory were made by another embedder, so a new one cannot be compared with them."""

    def __init__(self, place: str, made_by: str, wanted: str) -> None:
        super().__init__(
            f"the vectors of {place} were made by {made_by}, not by {wanted}",
            hint="`ratchet memory reembed` makes them anew; the texts stay as they are",
        )
        self.made_by = made_by
        self.wanted = wanted
