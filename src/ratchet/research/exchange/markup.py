"""Markup of a tool call that a model let slip into a text."""

from __future__ import annotations

import re
from typing import NamedTuple

_TAG = re.compile(r"</(?:hypothesis|parameter|invoke)>|<parameter\s+name=", re.IGNORECASE)
_NOTES = re.compile(r'<parameter\s+name="notes">(.*?)(?:</parameter>|</invoke>|$)', re.IGNORECASE | re.DOTALL)


class Cleaned(NamedTuple):
    hypothesis: str
    notes: str
    """The notes that had leaked into the hypothesis, if any."""


def clean(text: str) -> Cleaned:
    """A hypothesis without what leaked into it. One that is nothing but markup stays as it is."""
    tag = _TAG.search(text)
    if tag is None or not text[: tag.start()].strip():
        return Cleaned(text, "")
    notes = _NOTES.search(text, tag.start())
    return Cleaned(text[: tag.start()].rstrip(), notes[1].strip() if notes else "")
