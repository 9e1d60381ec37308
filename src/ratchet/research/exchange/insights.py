"""The Key Insights at the end of KNOWLEDGE.md: lessons, one to a bullet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

HEADING = "## Key Insights"
PLACEHOLDER = "*(One lesson to a bullet. This section is kept.)*"
_HEADING = re.compile(rf"^{HEADING}[ \t]*\r?$", re.MULTILINE)
_HINT = re.compile(r"\*\(.*\)\*\s*")
_BULLET = re.compile(r"(?:[-*+]|\d+[.)]) +")
_INDENT = "  "


def read_insights(knowledge: str) -> list[str]:
    """The lessons of a knowledge page: its bullets, and paragraphs that stand between them."""
    heading = _HEADING.search(knowledge)
    if heading is None:
        return []
    lessons: list[list[str]] = []
    # A lesson goes on over blank lines as long as what follows is indented.
    ended = True
    for line in knowledge[heading.end() :].split("\n")[1:]:
        bullet = _BULLET.match(line)
        if _HINT.fullmatch(line):
            ended = True
        elif not line.strip():
            if lessons:
                lessons[-1].append("")
            ended = True
        elif bullet is not None:
            lessons.append([line[bullet.end() :]])
            ended = False
        elif line.startswith(_INDENT) and lessons:
            lessons[-1].append(line.removeprefix(_INDENT))
            ended = False
        elif ended:
            lessons.append([line])
            ended = False
        else:
            lessons[-1].append(line)
    return [text for lesson in lessons if (text := tidied("\n".join(lesson)))]


def insight_lines(lessons: Iterable[str]) -> Iterator[str]:
    """The section as it is written, line by line."""
    yield f"{HEADING}\n"
    yield f"{PLACEHOLDER}\n"
    for lesson in lessons:
        first, *others = tidied(lesson).split("\n")
        if first:
            yield f"- {first}\n"
        for line in others:
            yield f"{_INDENT}{line}\n" if line else "\n"


def tidied(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()
