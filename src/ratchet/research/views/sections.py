"""Sections of a prompt within a budget of characters.

Each section has a share of it, and what one does not need goes to the others, the first of them first. So a long
section is cut at its own end and never pushes another one out. A trial's words are given once; where the trial comes up
again, it is only named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `short` stands for it where trial `number` has been shown in full already."""

    full: str
    short: str | None = None
    number: int | None = None

    def shown(self, seen: set[int]) -> str:
        return self.short if self.short is not None and self.number in seen else self.full


@dataclass(frozen=True, slots=True)
class Section:
    """`share` is its part of the budget; `head` are lines before the first entry, such as a table's."""

    title: str
    share: float
    entries: Sequence[Entry]
    head: Sequence[str] = ()

    @property
    def opening(self) -> list[str]:
        return [f"## {self.title}", "", *self.head]


def fit(sections: Sequence[Section], budget: int) -> str:
    """The sections in order, the first one whole, in no more than `budget` characters."""
    first, *others = [section for section in sections if section.entries]
    seen: set[int] = set()
    written = [_write(first, budget, seen)]
    left = budget - len(written[0])
    for section, room in zip(others, _rooms(others, left, set(seen)), strict=True):
        text = _write(section, room - len(_GAP), seen)
        if text:
            written.append(text)
    return _GAP.join(written)


_GAP = "\n\n"
_MORE = "… {count} more"


def _rooms(sections: Sequence[Section], budget: int, seen: set[int]) -> list[int]:
    """How many characters each may take: what it needs, at first up to its share, then of what is left over."""
    needs = []
    for section in sections:
        lines = [entry.shown(seen) for entry in section.entries]
        seen |= {entry.number for entry in section.entries if entry.number is not None}
        needs.append(sum(len(line) + 1 for line in (*section.opening, *lines)) + len(_GAP))
    shares = sum(section.share for section in sections) or 1.0
    rooms = [
        min(need, int(budget * section.share / shares)) for need, section in zip(needs, sections, strict=True)
    ]
    spare = budget - sum(rooms)
    for at, need in enumerate(needs):
        more = min(spare, need - rooms[at])
        rooms[at] += more
        spare -= more
    return rooms


def _write(section: Section, room: int, seen: set[int]) -> str:
    """As many of its entries as there is room for, told if there are more; nothing if there is room for none."""
    lines = section.opening
    used = sum(len(line) + 1 for line in lines)
    for at, entry in enumerate(section.entries):
        line = entry.shown(seen)
        left = len(section.entries) - at - 1
        reserve = len(_MORE.format(count=left)) + 1 if left else 0
        if used + len(line) + reserve > room:
            return "" if at == 0 else "\n".join([*lines, _MORE.format(count=left + 1)])
        lines.append(line)
        used += len(line) + 1
        if entry.number is not None:
            seen.add(entry.number)
    return "\n".join(lines)
