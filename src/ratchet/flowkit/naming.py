"""Names that can stand in a reference, in a file name and in a sentence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
WORKFLOW_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LONGEST = 100
_MOST_COMPARED = 300


def name_problem(key: str, name: str, allowed: re.Pattern[str] = NAME) -> str | None:
    """What is wrong with a name, if anything is."""
    if not name:
        return f"{key} is missing"
    if allowed.fullmatch(name):
        return None
    if len(name) > _LONGEST:
        return f"{key} {name[:40]!r}… has {len(name)} characters; at most {_LONGEST} are possible"
    marks = "_, - and ." if allowed is WORKFLOW_ID else "_ and -"
    return f"{key} {name!r} may only have letters, digits, {marks}, and begins with a letter, a digit or _"


def listed(name: str, names: Collection[str]) -> str:
    """The names that there are, as a hint in brackets: those that are like the wrong one, or the first few.

    Nothing if there are many: comparing each wrong name with each right one would take as long as somebody likes.
    """
    if not names:
        return " (there is none)"
    if len(names) > _MOST_COMPARED or len(name) > _LONGEST:
        return ""
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f" (did you mean {' or '.join(near)}?)"
    return f" (there is {', '.join(sorted(names)[:10])}{', …' if len(names) > 10 else ''})"
