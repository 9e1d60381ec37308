"""Which of what was kept was the best after so many trials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Kept(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def ended_at(self) -> int | None: ...


Some = TypeVar("Some", bound=Kept)


def in_force(kept: Iterable[Some]) -> list[Some]:
    """What was kept, by number, each the best from its own trial on.

    Of trials side by side the one that was handed in first may be kept last. It had to beat the others then, so they
    are left out.
    """
    found: list[Some] = []
    last = 0
    for each in sorted(kept, key=lambda one: one.number):
        if (each.ended_at or 0) >= last:
            last = each.ended_at or 0
            found.append(each)
    return found
