"""Tables for people, drawn by rich.

They are drawn on an endless page, so that nothing is wrapped or cut when it is piped. On a terminal long cells are
wrapped so that a table is as wide as it; where that leaves them too narrow to be read, each row becomes a list.
"""

from __future__ import annotations

import itertools
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ratchet.cli.words import hanging, lines, one_line

T = TypeVar("T")
Columns = Mapping[str, Callable[[T], object]]

_ENDLESS = 100_000
_GAP = 2
# A column that has to be narrower than this cannot be read, and a cell of more lines than that hides the others.
_NARROWEST = 14
_MOST_LINES = 12
_STATUS_COLUMNS = ("status", "state")
_STYLES = {
    **dict.fromkeys(("completed", "finished", "alive"), "green"),
    **dict.fromkeys(("failed", "dead"), "red"),
    **dict.fromkeys(("paused", "blocked", "cancelled", "draining"), "yellow"),
    **dict.fromkeys(("running", "started", "planning", "needs_qa"), "cyan"),
}


def print_table(items: Sequence[T], columns: Columns[T]) -> None:
    """One row for each item. A column holds what its function finds in them, and is left out if that is nothing."""
    found = {name: [function(item) for item in items] for name, function in columns.items()}
    filled = {name: values for name, values in found.items() if any(value is not None for value in values)}
    cells = {name: [_cell(name, value) for value in values] for name, values in filled.items()}
    widths = _fitting([_Column(name, values) for name, values in cells.items()], _room(0))
    if widths is None:
        _print_lists(filled)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, values in filled.items():
        numbers = all(isinstance(value, int) for value in values)
        table.add_column(name, justify="right" if numbers else "left")
    for row in zip(*cells.values(), strict=True):
        table.add_row(*map(_wrapped, row, widths))
    _print(table)


def _print_lists(columns: Mapping[str, Sequence[object]]) -> None:
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        if number:
            print()
        print_fields(dict(zip(columns, row, strict=True)))


class _Column:
    """How wide a column would be, and how wide it has to be so that no word is broken."""

    def __init__(self, name: str, cells: Sequence[Text]) -> None:
        self.width = max(cell_len(name), *(cell.cell_len for cell in cells))
        words = (cell_len(word) for cell in cells for word in cell.plain.split())
        self.least = max(cell_len(name), *words, 0)


def _fitting(columns: Sequence[_Column], room: int) -> Sequence[int] | None:
    """A width for each column, so that they fit side by side; nothing if some could not be read.

    The first one names the row, and is left whole unless it takes half of the room. Of the others the widest are
    wrapped first, and words are broken where there is no other way.
    """
    room -= _GAP * (len(columns) - 1)
    first, *others = columns
    name = min(first.width, room // 2) if others else first.width
    for whole_words in (True, False):
        for most in range(room, _NARROWEST - 1, -1):
            found = [min(each.width, max(most, each.least if whole_words else 0)) for each in others]
            if name + sum(found) <= room:
                return [name, *found]
    return None


def _wrapped(cell: Text, most: int) -> Text:
    if cell.cell_len <= most:
        return cell
    parts = list(cell.wrap(Console(width=_ENDLESS), most))
    if len(parts) > _MOST_LINES:
        parts = parts[:_MOST_LINES]
        parts[-1].truncate(most - 1)
        parts[-1].append("…")
    return Text("\n").join(parts)


def print_fields(fields: Mapping[str, object]) -> None:
    """Name and value, one pair to a line; values keep their lines. What is not there is left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold", max_width=_room(max(map(len, fields)) + _GAP))
    for name, value in fields.items():
        if value is not None:
            table.add_row(name, Text(lines(_shown(value)), style=_style(name, value)))
    _print(table)


def print_markdown(text: str) -> None:
    """Text with tables in it, as it is; on a terminal the tables are drawn and the lines between them wrapped."""
    if not Console(file=sys.stdout).is_terminal:
        print(text)
        return
    for is_table, group in itertools.groupby(text.splitlines(), lambda line: line.startswith("| ")):
        if not is_table:
            print("\n".join(hanging(line, 0) for line in group))
            continue
        names, _, *rows = (_split_row(line) for line in group)
        print_table(rows, {name: operator.itemgetter(at) for at, name in enumerate(names)})


def _split_row(line: str) -> list[str]:
    """The cells of a row of Markdown, without what keeps them harmless there."""
    cells = re.split(r" \| ", line.removeprefix("| ").removesuffix(" |"))
    return [re.sub(r"\\([|<(])", r"\1", cell) for cell in cells]


def _room(taken: int) -> int:
    console = Console(file=sys.stdout)
    return max(_NARROWEST, console.width - taken) if console.is_terminal else _ENDLESS


def _print(table: Table) -> None:
    console = Console(file=sys.stdout, highlight=False, width=_ENDLESS)
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().splitlines():
        print(line.rstrip())


def _cell(column: str, value: object) -> Text:
    return Text(one_line(_shown(value)), style=_style(column, value))


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _style(name: str, value: object) -> str:
    return _STYLES.get(str(value), "") if name in _STATUS_COLUMNS else ""
