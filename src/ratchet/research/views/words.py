"""Text and numbers from the ledger as a table, a prompt or a page may show them: on one line, and harmless."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from ratchet.kernel import Usage, dollars

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
    """What is known of the cost. What nobody knows is unknown, and never nothing."""
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
    """Lines of a Markdown table whose cells are fit for it already."""
    head = [table_row(columns), table_row(["---"] * len(columns))]
    return [*head, *map(table_row, rows)]


def table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else " " if each.isspace() else "\ufffd" for each in text)


def _plain_number(value: float) -> bool:
    return value == 0 or 1e-4 <= abs(value) < 1e9
