"""Which column of results.tsv holds what. Tasks have their own columns; the score is the one right after `status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.kernel import Misuse
from ratchet.research.adapter import FIXED_COLUMNS

# Total time is a column that every task has, and a number all the same.
_TEXTS = FIXED_COLUMNS - {"total_s"}
_MOST_COLUMNS = 200


@dataclass(frozen=True)
class Layout:
    """The columns in order, `score` among them."""

    columns: tuple[str, ...]
    score: str

    @cached_property
    def places(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.columns)}

    @cached_property
    def measured(self) -> tuple[str, ...]:
        """The columns with numbers about a trial that are not its score."""
        return tuple(name for name in self.columns if name not in _TEXTS and name != self.score)

    def cell(self, cells: Sequence[str], column: str) -> str:
        """A cell by the name of its column; empty when the file has no such column."""
        place = self.places.get(column)
        return "" if place is None else cells[place]

    def named(self, cells: Sequence[str]) -> dict[str, str]:
        return dict(zip(self.columns, cells, strict=True))


def read_layout(header: Sequence[str], file: str) -> Layout:
    """Raises `Misuse` for a header that is not one of results.tsv."""
    if len(header) > _MOST_COLUMNS:
        raise Misuse(f"{file} has {len(header)} columns, too many for a results.tsv")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise Misuse(f"{file} has a column twice: {', '.join(twice)[:200]}", hint="rename one of them")
    missing = [name for name in ("exp_id", "status") if name not in header]
    if missing:
        raise Misuse(
            f"the first line of {file} names no column {' and none '.join(missing)}",
            hint="it must be the header of a results.tsv",
        )
    after = header[header.index("status") + 1 :]
    if not after or not after[0] or after[0] in FIXED_COLUMNS:
        raise Misuse(
            f"{file} has no column for the score", hint="the score is the column right after `status`"
        )
    return Layout(tuple(header), after[0])
