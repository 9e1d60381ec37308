"""The contenders, each with the same few verbs."""

from __future__ import annotations

from typing import Any, Protocol


class Side(Protocol):
    def enqueue(self, count: int) -> None:
        """Add `count` jobs that do nothing, each on its own."""

    def enqueue_together(self, count: int) -> None:
        """The same in one go, where the contender knows how."""

    def enqueue_stamp(self) -> None:
        """Add one job that notes when it started."""

    def finished(self) -> int:
        """How many jobs the contender itself says were finished; -1 when it keeps no such count."""

    def work(self) -> None:
        """Do jobs until this process is told to end."""

    def work_here(self) -> None:
        """Do jobs beside whatever else this process does."""


def open_side(name: str, place: dict[str, Any]) -> Side:
    """The contender called `name`; imports nothing of the others."""
    if name == "ratchet":
        from benchmarks.sides.ratchet import RatchetSide

        return RatchetSide(place)
    if name == "huey":
        from benchmarks.sides.huey import HueySide

        return HueySide(place)
    from benchmarks.sides.rq import RqSide

    return RqSide(place, forking=name == "rq-fork")
