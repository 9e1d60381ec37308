"""What a measure found: a table, the goals it was held against, and the raw numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of the design and what was measured for it."""

    text: str
    measured: str
    met: bool

    def __str__(self) -> str:
        return f"{'met   ' if self.met else 'MISSED'}  {self.text}: {self.measured}"


@dataclass(slots=True)
class Result:
    name: str
    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"## {self.name}: {self.title}", "", *_table([self.columns, *self.rows])]
        if self.goals:
            parts += ["", *(f"- {goal}" for goal in self.goals)]
        if self.notes:
            parts += ["", *(f"- note: {note}" for note in self.notes)]
        return "\n".join(parts)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned Markdown, so that what the terminal shows can go into the documentation as it is."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = [f"{'-' * widths[0]}", *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    return [line(rows[0]), line(rule), *(line(row) for row in rows[1:])]
