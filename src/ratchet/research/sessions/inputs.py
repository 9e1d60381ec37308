"""What a model may say about its work, checked before anything is done with it.

A mistake is reported with the value and what would be right, since the model is the one to fix it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import Misuse, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """What a specialist says about the change in its workspace. `parent` is the trial that the workspace stands on."""

    hypothesis: str
    parent: int
    expected_delta: str = ""
    notes: str = ""


NO_HYPOTHESIS = "no hypothesis was given"
_LABEL = re.compile(
    r"^[\s>#*_`\-•]*(?:final\s+)?hypothesis[\s*_`]*[:=\-–—]+[\s*_`]*(?P<rest>.*)$", re.IGNORECASE
)
_DECORATION = " \t*_`\"'>#-"


def hypothesis_of(session_text: str) -> str:
    """What the last line `HYPOTHESIS: …` says, or the first line that says anything. One line, never empty."""
    lines = session_text.splitlines()
    for number in range(len(lines) - 1, -1, -1):
        found = _LABEL.match(lines[number])
        if found is not None:
            said = next(filter(None, map(_plain, (found["rest"], *lines[number + 1 :]))), "")
            if said:
                return said
    others = (line for line in lines if not _LABEL.match(line))
    return next(filter(None, map(_plain, others)), NO_HYPOTHESIS)


def _plain(line: str) -> str:
    said = without_markup(line).strip(_DECORATION)
    return shortened(said, LONGEST)


SHORTEST, LONGEST = 10, 300
NOTES = 2000
_SHOWN = 60
_TRIAL = re.compile(r"(?:(?:exp|trial)[\s_-]*|#)?(\d{1,9})", re.IGNORECASE)
_LEAKED = re.compile(
    r"</\s*[a-z]|<\s*/?\s*(?:antml:|parameter|invoke|function|tool|hypothesis|expected_delta|notes|parent)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{2,}")
# Words that say nothing, alone or together.
_EMPTY = {
    *("an", "the", "this", "my", "is", "of", "and", "or", "to", "for", "in", "it", "here", "again"),
    *("test", "tests", "testing", "tested", "try", "trying", "trial", "trials", "experiment", "baseline"),
    *("hypothesis", "hypotheses", "idea", "change", "changes", "changed", "submit", "submission"),
    *("something", "anything", "nothing", "none", "todo", "tbd", "na", "placeholder", "text", "string"),
    *("example", "hello", "world", "foo", "bar", "baz", "asdf", "lorem", "ipsum"),
}


def hypothesis(text: str) -> str:
    """One line of 10 to 300 characters that says something. Raises `Misuse`."""
    # Spaces of all widths become plain ones, which every reader can search for.
    said = "".join(" " if unicodedata.category(each) == "Zs" else each for each in text).strip()
    _check_plain("hypothesis", said, allowed="")
    if not SHORTEST <= len(said) <= LONGEST:
        raise Misuse(
            f"the hypothesis {_shown(said)} has {len(said)} characters",
            hint=f"say in one line of {SHORTEST} to {LONGEST} characters what was changed and why it should help",
        )
    words = {word.lower() for word in _WORD.findall(said)}
    if len(words) < 2 or words <= _EMPTY:
        raise Misuse(
            f"the hypothesis {_shown(said)} says nothing", hint="say what was changed and why it should help"
        )
    return said


def notes(text: str, *, what: str = "notes", longest: int = NOTES) -> str:
    """Free text of several lines. Raises `Misuse`."""
    said = text.strip()
    _check_plain(what, said, allowed="\n\t")
    if len(said) > longest:
        raise Misuse(f"the {what} have {len(said)} characters", hint=f"use at most {longest}")
    return said


def expected_delta(given: str | float) -> str:
    """A finite number, as text. Raises `Misuse`."""
    said = given.strip() if isinstance(given, str) else repr(given)
    try:
        # As a reader sees it: Python would also take 1_000 and digits of other scripts.
        value = float(said) if said.isascii() and "_" not in said else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or len(said) > 32:
        raise Misuse(
            f"the expected_delta {_shown(said)} is no number",
            hint="give the change of the score that is expected, such as -0.02",
        )
    return said


def trial_number(given: str | int) -> int:
    """The number of a trial that is called `exp_75`, `075`, `75` or plainly 75. Raises `Misuse`."""
    found = _TRIAL.fullmatch(str(given).strip())
    if found is None or not found[1].isascii():
        raise Misuse(
            f"{_shown(str(given))} is no id of a trial", hint="ids look like 075; 000 is the baseline"
        )
    return int(found[1])


def without_markup(text: str) -> str:
    """A text up to where the markup of a tool call leaked into it, in one line."""
    found = _LEAKED.search(text)
    plain = "".join(" " if _is_control(each) else each for each in (text[: found.start()] if found else text))
    return " ".join(plain.split())


def _check_plain(what: str, text: str, *, allowed: str) -> None:
    for each in text:
        if _is_control(each) and each not in allowed:
            lines = " or a second line" if each in "\r\n" else ""
            raise Misuse(
                f"the {what} {_shown(text)} has the control character U+{ord(each):04X}{lines} in it",
                hint="write plain text" + ("" if "\n" in allowed else " in one line"),
            )
    leaked = _LEAKED.search(text)
    if leaked is not None:
        raise Misuse(
            f"the {what} {_shown(text[leaked.start() :])} has markup of a tool call in it",
            hint="give each argument by itself, without tags",
        )


def _is_control(character: str) -> bool:
    """Whether it is something that no plain text has: controls, invisible marks, surrogates, other line ends."""
    return unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp")


def _shown(value: Any) -> str:
    text = str(value)
    return repr(shortened(text, _SHOWN))
