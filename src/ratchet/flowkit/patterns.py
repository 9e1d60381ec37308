"""Regular expressions that come with a workflow, matched only where that cannot take forever."""

from __future__ import annotations

import re

from .errors import SpecError

_LONGEST = 500
_MOST_WORK = 10**8


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern, if anything is."""
    if len(pattern) > _LONGEST:
        return f"has more than {_LONGEST} characters"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    if re.search(r"\)[*+{]|\\[1-9]|\(\?P=", _plain(pattern)):
        return "repeats a group or refers back to one, which can take forever to match"
    return None


def fits(text: str, pattern: str) -> bool:
    """Whether the pattern occurs in the text. Raises `SpecError` if finding out could take too long."""
    problem = pattern_problem(pattern)
    if problem is None and _work(pattern, len(text)) > _MOST_WORK:
        problem = f"is too costly for a text of {len(text)} characters"
    if problem:
        raise SpecError([f"the pattern {pattern[:100]} {problem}"])
    return re.search(pattern, text) is not None


def _work(pattern: str, length: int) -> int:
    """An upper bound of the steps that a backtracking match takes when no group is repeated."""
    plain = _plain(pattern)
    loops = len(re.findall(r"[*+]|\{\d*,?\d*\}", plain))
    anchored = plain.startswith("^") and "|" not in plain
    choices = plain.count("?") + plain.count("|")
    return int((length + 1) ** min(loops + (not anchored), 20) * 2 ** min(choices, 64))


def _plain(pattern: str) -> str:
    """The pattern with every escaped character and every set replaced by one letter; references back stay."""
    return re.sub(r"\\[^1-9]|\[\^?\]?(?:[^\]\\]|\\.)*\]", "x", pattern, flags=re.DOTALL)
