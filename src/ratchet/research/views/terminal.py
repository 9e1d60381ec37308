"""A run drawn for a terminal with rich, and as plain text where there is none.

Rich is loaded when something is drawn: prompts and JSON come from the same package and do without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ratchet.research.views._status import Status, better
from ratchet.research.views.text import NOTHING, cost_of, duration, number, one_line, signed, trials
from ratchet.research.views.trials import activity_head, tried_cells

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from ratchet.ledger.trials import Trial
    from ratchet.research.views._status import LiveView

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
_WIDEST = 20
_STYLES = {
    "keep": "bold green",
    "baseline": "green",
    "discard": "dim",
    "running": "cyan",
    "infra_error": "yellow",
}


def draw_live(value: LiveView, *, whole: bool = False) -> RenderableType:
    """The whole picture. Texts are drawn as they are: nothing in them is taken for markup.

    Long texts are cut to a line each, so that the picture stays small; with `whole` they are wrapped.
    """
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    status = value.status
    parts: list[RenderableType] = [
        Panel(Text("\n".join(_head(status))), title=Text(_title(status)), title_align="left"),
        Text("\n".join(_lines_of_scores(value))),
    ]
    return Group(*parts, *(_table(title, rows, whole) for title, rows in _tables(value)))


def live_text(value: LiveView) -> str:
    """The same in plain lines, for a pipe or a log."""
    status = value.status
    lines = [_title(status), *_head(status), *_lines_of_scores(value)]
    return "\n".join(lines + [line for title, rows in _tables(value) for line in _aligned(title, rows)])


def _tables(value: LiveView) -> list[tuple[str, list[list[str]]]]:
    """Each with its title, the names of its columns first; none that would have no rows."""
    yields = [[*row[:5], row[6], row[8]] for row in value.status.specialists.table(60)]
    flights = [["exp", "specialist", "for", "hypothesis"]]
    flights += [_flight(each, value.now) for each in value.status.in_flight]
    last = [activity_head("score"), *(tried_cells(each, 100) for each in value.last)]
    found = [("specialists", yields), ("in flight", flights), ("last trials", last)]
    return [(title, rows) for title, rows in found if len(rows) > 1]


def sparkline(scores: Sequence[float]) -> str:
    """Eighths of a line, from the lowest to the highest score."""
    if not scores:
        return NOTHING
    low, high = min(scores), max(scores)
    if high == low:
        return _BARS[3] * len(scores)
    # Halved first, so that the widest range there is does not overflow.
    step = (high / 2 - low / 2) / (len(_BARS) - 1)
    return "".join(_BARS[round((score / 2 - low / 2) / step)] for score in scores)


def _title(status: Status) -> str:
    simulated = ", simulated" if status.simulated else ""
    name = f"{one_line(status.run.name, 60)} ({one_line(status.standing.task, 60)})"
    return f"run {status.run.id} {name}: {status.run.status}{simulated}"


def _head(status: Status) -> list[str]:
    counts = ", ".join(f"{count} {name}" for name, count in status.by_status.items())
    lines = [
        f"{trials(status.standing.trials)}{': ' if counts else ''}{counts}",
        f"ran {duration(status.active_seconds)}, {status.last_keep}, "
        f"{status.usage.tokens:,} tokens, {cost_of(status.usage, 'unknown cost')}",
        _best(status),
        *(
            f"{what}: {one_line(text, 160)}"
            for what, text in (("plain baseline", status.plain_baseline), ("known best", status.known_best))
            if text
        ),
    ]
    return [*lines, *([f"why: {one_line(status.run.reason, 200)}"] if status.run.reason else [])]


def _best(status: Status) -> str:
    best, standing = status.best, status.standing
    if best is None:
        return "no best yet"
    field = one_line(standing.score_field, 40)
    gained = (
        ""
        if status.gained is None
        else f", {signed(status.gained)} better than the baseline{status.gained_range}"
    )
    score = (
        f"best {best.exp_id}: {field} {number(standing.best_score)} ({better(standing.direction)}){gained}"
    )
    return f"{score}\n  {one_line(best.specialist, 40)}: {one_line(best.hypothesis, 160)}"


def _lines_of_scores(value: LiveView) -> list[str]:
    kept, recent = value.kept[-_WIDTH:], value.recent[-_WIDTH:]
    return [f"kept    {sparkline(kept)}", f"recent  {sparkline(recent)}"]


def _flight(trial: Trial, now: int) -> list[str]:
    since = duration(max(0, now - trial.started_at) / 1000)
    return [trial.exp_id, one_line(trial.specialist, 30), since, one_line(trial.hypothesis, 100)]


def _table(title: str, lines: Sequence[Sequence[str]], whole: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    # Where the terminal is narrow, the last column gives way: it is a sentence, the others are names and numbers.
    drawn = Table(
        box=None, pad_edge=False, title=title, title_justify="left", header_style="bold", expand=True
    )
    columns, *rows = lines
    for name in columns:
        last = name == columns[-1]
        wraps = whole and last
        drawn.add_column(
            name,
            no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
            ratio=1 if last else None,
            max_width=None if last else _WIDEST,
        )
    for row in rows:
        drawn.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in row))
    return drawn


def _aligned(title: str, lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in lines
    ]
    return ["", title, *padded]
