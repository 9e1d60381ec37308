"""Reading a page of the documentation: its fenced blocks, its headings and its links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block, and the paragraph right above it."""

    language: str
    text: str
    above: str


def pages() -> list[Path]:
    """Everything that is written for people to read."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        *_, above = re.split(r"\n\s*\n", text[: found.start()].rstrip())
        yield Block(found[1].strip(), found[2], above)


def links(text: str) -> list[str]:
    """Where a page leads to, without what stands in blocks and between backticks."""
    prose = re.sub(r"`[^`\n]+`", "`code`", _FENCE.sub("", text))
    return [unquote(target or picture) for target, picture in _LINK.findall(prose)]


@cache
def anchors(text: str) -> set[str]:
    """The names under which a forge lets a page's headings be linked."""
    given: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names.add(f"{anchor}-{given[anchor]}" if given[anchor] else anchor)
        given[anchor] += 1
    return names
