"""Text from the ledger as it may be shown. It may come from anywhere, and a terminal obeys control characters."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ratchet.kernel.usage import dollars

if TYPE_CHECKING:
    from ratchet.kernel import Usage


def one_line(text: str) -> str:
    """The first line of `text` that says something, with control characters made visible."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "".join(map(_visible, first))


def lines(text: str) -> str:
    """`text` with its lines kept and other control characters made visible."""
    return "\n".join("".join(map(_visible, line)) for line in text.splitlines())


def hanging(text: str, indent: int) -> str:
    """`text` for column `indent` of a terminal, wrapped so that it stays to the right of it; elsewhere as it is."""
    if not sys.stdout.isatty():
        return text
    width = max(20, shutil.get_terminal_size().columns - indent)
    return f"\n{' ' * indent}".join(textwrap.wrap(text, width, break_on_hyphens=False) or [""])


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
