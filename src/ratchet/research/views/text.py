"""Text and numbers as a table, a prompt or a page may show them: on one line, harmless, within a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from ratchet.kernel import Usage, dollars
from ratchet.operations import record


class ResearchView:
    """What is shown of a run: as `to_markdown`, and as what the API answers with."""

    __slots__ = ()

    none: ClassVar[str] = ""
    """What is said in the place of a table without rows."""

    def answer(self) -> Any:
        raise NotImplementedError

    def table(self, limit: int = 100) -> list[list[str]]:
        """The names of the columns and the rows, for any face. Long texts have up to `limit` characters."""
        raise NotImplementedError

    def to_markdown(self) -> str:
        head, *rows = self.table()
        return "\n".join(table(head, rows)) if rows else self.none

    def to_dict(self) -> Any:
        """The answer as JSON."""
        found = self.answer()
        return list(map(record, found)) if isinstance(found, list) else record(found)


class PromptEntry(NamedTuple):
    """One line. `short` stands for it where trial `number` has been shown in full already."""

    full: str
    short: str | None = None
    number: int | None = None


class PromptSection(NamedTuple):
    """`share` is its part of the budget; `head` are lines before the first entry, such as a table's.

    It has no more than one entry for a trial.
    """

    title: str
    share: float
    entries: Sequence[PromptEntry]
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


def fit(sections: Sequence[PromptSection], budget: int) -> str:
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


def _wholes(sections: Sequence[PromptSection], seen: set[int]) -> list[_Whole]:
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


def _rooms(sections: Sequence[PromptSection], needs: Sequence[int], budget: int) -> list[int]:
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


def _write(section: PromptSection, room: int, seen: set[int]) -> str:
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


NOTHING = "–"
_CUT = "…"
# Of a long text, as much is looked at as can matter to its beginning.
_LOOKED_AT = 4
_JSON = 2000
# In Markdown a cell ends, a tag begins and a link points somewhere only where these stand unescaped.
_MARKDOWN = (("|", "\\|"), ("<", "\\<"), ("](", "]\\("))


def one_line(text: str, limit: int) -> str:
    """The beginning of `text` on one line, without characters that a terminal or a browser would obey."""
    looked_at = text[: limit * _LOOKED_AT]
    plain = " ".join(_plain(looked_at).split())
    cut = len(looked_at) < len(text) or len(plain) > limit
    return f"{plain[: limit - 1]}{_CUT}" if cut else plain


@lru_cache(maxsize=2048)
def both_ends(text: str, limit: int) -> str:
    """The beginning and the end of `text` on one line: an error says last where it happened."""
    if len(text) <= limit:
        return one_line(text, limit)
    half = limit // 2
    tail = " ".join(_plain(text[-half * _LOOKED_AT :]).split())[-half:]
    return f"{one_line(text, limit - half)} {tail}"


# One prompt after the other shows nearly the same trials.
@lru_cache(maxsize=8192)
def cell(text: str, limit: int) -> str:
    """`text` on one line for Markdown, where it ends no cell and makes no tag, link or image."""
    return escaped(one_line(text, limit))


def escaped(line: str) -> str:
    for special, harmless in _MARKDOWN:
        line = line.replace(special, harmless)
    return line


def number(value: float | None) -> str:
    """Six places, and the exponent of what that cannot tell."""
    if value is None:
        return NOTHING
    return f"{value:.6f}" if _plain_number(value) else f"{value:.6g}"


def signed(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:+.6f}" if _plain_number(value) else f"{value:+.6g}"


def trials(count: int) -> str:
    return f"{count:,} trial{'' if count == 1 else 's'}"


def money(microusd: float) -> str:
    return dollars(microusd / 1_000_000)


def cost_of(usage: Usage, unknown: str = "unknown") -> str:
    """What is known of the cost. What is not known is shown as unknown, never as nothing."""
    if not usage.unpriced_tokens:
        return money(usage.cost_microusd)
    return f"over {money(usage.cost_microusd)}" if usage.cost_microusd else unknown


def duration(seconds: float) -> str:
    """`12s`, `3m 20s`, `5h 07m`"""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes = whole // 60
    return f"{minutes}m {whole % 60:02}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02}m"


def json_text(text: str | None) -> str | None:
    """`text` as it is, but no longer than a program wants to be sent."""
    return text if text is None or len(text) <= _JSON else f"{text[:_JSON]}{_CUT}"


def finite(value: object) -> float | None:
    """A number that JSON has, or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; what a cell has is plain text."""
    head = [table_row(columns), table_row(["---"] * len(columns))]
    return [*head, *map(table_row, rows)]


def table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def _plain(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else " " if each.isspace() else "\ufffd" for each in text)


def _plain_number(value: float) -> bool:
    return value == 0 or 1e-4 <= abs(value) < 1e9
