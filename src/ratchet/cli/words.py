"""Text from the ledger as it may be shown. It may come from anywhere, and a terminal obeys control characters."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from ratchet.kernel.text import dollars

if TYPE_CHECKING:
    from ratchet.kernel import Usage


_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def clock(milliseconds: int) -> str:
    """Local time: `2026-07-31 22:11:44`"""
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(milliseconds: int | None, now: float | None = None) -> str | None:
    """`5m ago`, `in 2h`, `now`; nothing for a moment that has not come."""
    if milliseconds is None:
        return None
    seconds = (time.time() if now is None else now) - milliseconds / 1000
    for length, unit in _UNITS:
        if abs(seconds) >= length:
            count = f"{int(abs(seconds) // length)}{unit}"
            return f"{count} ago" if seconds > 0 else f"in {count}"
    return "now"


def age_of(moment: str | None) -> str | None:
    """The same for a moment in ISO 8601."""
    return None if moment is None else age(int(datetime.fromisoformat(moment).timestamp() * 1000))


def span(start: int | None, end: int | None) -> str | None:
    """How long something took: `1.2s`, `3m 20s`. Up to now when it has not ended."""
    if start is None:
        return None
    seconds = max(0.0, (time.time() if end is None else end / 1000) - start / 1000)
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m {rest}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"


def one_line(text: str) -> str:
    """The first line of `text` that says something, with control characters made visible."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "".join(map(_visible, first))


def lines(text: str) -> str:
    """`text` with its lines kept and other control characters made visible."""
    return "\n".join("".join(map(_visible, line)) for line in text.splitlines())


def hanging(text: str, indent: int, stream: TextIO | None = None) -> str:
    """`text` for column `indent` of a terminal, wrapped so that it stays to the right of it; elsewhere as it is.

    A word that is longer than a line, such as a path, stays whole: it can be copied.
    """
    if not (stream or sys.stdout).isatty():
        return text
    width = max(20, shutil.get_terminal_size().columns - indent)
    wrapped = [
        part
        for line in text.splitlines() or [""]
        for part in textwrap.wrap(line, width, break_on_hyphens=False, break_long_words=False) or [""]
    ]
    return f"\n{' ' * indent}".join(wrapped)


def cost_words(used: Usage | Mapping[str, Any]) -> str:
    """What is known of the cost, of a usage or of metrics. What nobody knows is unknown, and never nothing."""
    taken = used if isinstance(used, Mapping) else used.measures()
    known = dollars(taken["cost_microusd"] / 1_000_000)
    if not taken["unpriced_tokens"]:
        return known
    return f"over {known}" if taken["cost_microusd"] else "unknown cost"


def compact(value: Any) -> str | None:
    """A JSON value on one line; nothing for an empty one."""
    if value is None or value in ({}, [], ""):
        return None
    return json.dumps(value, ensure_ascii=False)


def as_json(value: Any) -> str | None:
    """A JSON value on one line, an empty one too; nothing for none."""
    return None if value is None else json.dumps(value, ensure_ascii=False)


def pairs(value: Any) -> str | None:
    """A JSON object as `name=value` pairs, anything else as `compact` has it."""
    if not isinstance(value, dict):
        return compact(value)
    return " ".join(
        f"{name}={item if isinstance(item, str) else compact(item)}" for name, item in value.items()
    )


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
