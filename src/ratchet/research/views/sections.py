"""Sections of a prompt within a budget of characters.

Each section has a share of it, and what one does not need goes to the others, the first of them first. So a long
section is cut at its own end and never pushes another one out. A trial's words are given once; where the trial comes up
again, it is only named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """One line. `short` stands for it where trial `number` has been shown in full already."""

    full: str
    short: str | None = None
    number: int | None = None


class Section(NamedTuple):
    """`share` is its part of the budget; `head` are lines before the first entry, such as a table's.

    It has no more than one entry for a trial.
    """

    title: str
    share: float
    entries: Sequence[Entry]
    head: Sequence[str] = ()

    @property
    def opening(self) -> list[str]:
        return [f"## {self.title}", "", *self.head]


class _Whole(NamedTuple):
    """A section as it is when nothing is cut, and the trials in it."""

    text: str
    shortest: int
    numbers: set[int]

    @property
    def need(self) -> int:
        return len(self.text) + 1 + len(_GAP)

    def fits(self, room: int) -> bool:
        """Surely so. Where a line is shorter than the note of one that is left out, they have to be counted."""
        return self.need <= room and self.shortest >= _LEAST


def fit(sections: Sequence[Section], budget: int) -> str:
    """The sections in order, the first one whole, in no more than `budget` characters."""
    first, *others = [section for section in sections if section.entries]
    seen: set[int] = set()
    written = [_write(first, budget, seen)]
    wholes = _wholes(others, seen)
    rooms = _rooms(others, [whole.need for whole in wholes], budget - len(written[0]))
    nothing_cut = True
    for section, whole, room in zip(others, wholes, rooms, strict=True):
        nothing_cut = nothing_cut and whole.fits(room)
        if nothing_cut:
            seen |= whole.numbers
            written.append(whole.text)
        elif text := _write(section, room - len(_GAP), seen):
            written.append(text)
    return _GAP.join(written)


_GAP = "\n\n"
_MORE = "… {count} more"
_LEAST = len(_MORE.format(count=1))


def _wholes(sections: Sequence[Section], seen: set[int]) -> list[_Whole]:
    """The sections after those whose trials are in `seen`."""
    before = set(seen)
    found = []
    for section in sections:
        lines = [
            full if short is None or number not in before else short
            for full, short, number in section.entries
        ]
        numbers = {number for _, _, number in section.entries if number is not None}
        found.append(_Whole("\n".join(section.opening + lines), min(map(len, lines)), numbers))
        before |= numbers
    return found


def _rooms(sections: Sequence[Section], needs: Sequence[int], budget: int) -> list[int]:
    """How many characters each may take: what it needs, at first up to its share, then of what is left over."""
    shares = sum([section.share for section in sections]) or 1.0
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
    used = sum(map(len, lines)) + len(lines)
    first, left = len(lines), len(section.entries)
    most = len(_MORE.format(count=left)) + 1
    for full, short, number in section.entries:
        line = full if short is None or number not in seen else short
        left -= 1
        used += len(line)
        # How long the note of the rest is only matters near the end.
        if used + most > room:
            reserve = len(_MORE.format(count=left)) + 1 if left else 0
            if used + reserve > room:
                return "" if len(lines) == first else "\n".join([*lines, _MORE.format(count=left + 1)])
        lines.append(line)
        used += 1
        if number is not None:
            seen.add(number)
    return "\n".join(lines)
