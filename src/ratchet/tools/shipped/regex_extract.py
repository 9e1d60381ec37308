"""What a regular expression finds in a text."""

from __future__ import annotations

import re
from typing import Any


def run(text: str, pattern: str, ignore_case: bool = False, most: int = 1000) -> dict[str, Any]:
    """Each match as a text, as a list of its groups, or by the names of its groups if they have names."""
    found = []
    for match in re.finditer(pattern, text, re.IGNORECASE if ignore_case else 0):
        found.append(match.groupdict() or (list(match.groups()) if match.groups() else match.group()))
        if len(found) == most:
            break
    return {"matches": found, "count": len(found)}
