"""Telling a file that Ratchet wrote from one that a person wrote or changed."""

from __future__ import annotations

import hashlib
import re

_SEAL = "# Written by Ratchet. Change it as you like: it is never overwritten. seal="
_SEALED = re.compile(re.escape(_SEAL) + r"([0-9a-f]{16})\n")
NOTHING = "# Nothing to run was found."


def seal(text: str) -> str:
    """`text` with a line that says who wrote it, behind the first one if that names an interpreter."""
    first, newline, rest = text.partition("\n")
    head, body = (first + newline, rest) if first.startswith("#!") else ("", text)
    return f"{head}{_SEAL}{_digest(head + body)}\n{body}"


def is_untouched(text: str) -> bool:
    """Whether it is as Ratchet wrote it."""
    found = _SEALED.search(text)
    return found is not None and _digest(text.replace(found[0], "", 1)) == found[1]


def runs_nothing(text: str) -> bool:
    """Whether it is a script of Ratchet's that had nothing to run."""
    return is_untouched(text) and NOTHING in text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
