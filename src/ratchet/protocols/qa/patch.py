"""A patch as a reviewer can read it."""

from __future__ import annotations

import re

# Lines of text stand behind a sign in a patch, so nothing that a file holds can begin or end such a block.
_BINARY = re.compile(r"^GIT binary patch\n(?:(?:literal|delta) \d+\n(?:[A-Za-z]\S*\n)*\n?)+", re.MULTILINE)


def readable(patch: str) -> str:
    """The patch with a word in place of each content that is no text."""
    return _BINARY.sub("(not a text)\n", patch)
