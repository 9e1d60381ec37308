"""The hypothesis of a session that could not submit by itself, read from the last thing that it said."""

from __future__ import annotations

import re

from ratchet.research.sessions.inputs import LONGEST, without_markup

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
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"
