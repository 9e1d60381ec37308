"""Writing Markdown that looks the same on every forge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

GENERATED = "This page is made of the code by `make docs`; do not change it by hand."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def block(lines: Iterable[str], language: str = "") -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def code(text: str) -> str:
    """Between backticks, whatever is in it."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def prose(text: str) -> str:
    """Text that was written for a terminal: what stands between backticks stays, and nothing else is markup."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        each if each.startswith("`") else re.sub(r"([*_<>\[\]\\])", r"\\\1", each) for each in parts
    )


def anchor(heading: str) -> str:
    """How a forge names the heading in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page(parts: Iterable[str]) -> str:
    """The parts with an empty line between them."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
