"""Tables for people, drawn by rich.

They are drawn on an endless page, so that nothing is wrapped or cut when it is piped. On a terminal the last column
gets what the others leave.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ratchet.cli.words import lines, one_line

T = TypeVar("T")
Columns = Mapping[str, Callable[[T], object]]

_ENDLESS = 100_000
_GAP = 2
# What the last column has at least, however narrow the terminal is.
_LAST = 12
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
    *others, last = cells
    room = _room(sum(_width(name, cells[name]) + _GAP for name in others))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, values in filled.items():
        table.add_column(
            name,
            justify="right" if all(isinstance(value, int) for value in values) else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=room if name == last else None,
        )
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    _print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Name and value, one pair to a line; values keep their lines. What is not there is left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold", max_width=_room(max(map(len, fields)) + _GAP))
    for name, value in fields.items():
        if value is not None:
            table.add_row(name, Text(lines(_shown(value)), style=_style(name, value)))
    _print(table)


def _room(taken: int) -> int:
    console = Console(file=sys.stdout)
    return max(_LAST, console.width - taken) if console.is_terminal else _ENDLESS


def _print(table: Table) -> None:
    console = Console(file=sys.stdout, highlight=False, width=_ENDLESS)
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().splitlines():
        print(line.rstrip())


def _width(name: str, cells: list[Text]) -> int:
    return max(cell_len(name), *(cell.cell_len for cell in cells))


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
