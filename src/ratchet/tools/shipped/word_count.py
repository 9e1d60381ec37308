"""How often each word of a text occurs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def run(text: str, most: int = 20, shortest: int = 1) -> dict[str, Any]:
    words = [word.casefold() for word in _WORD.findall(text) if len(word) >= shortest]
    counted = sorted(Counter(words).items(), key=lambda each: (-each[1], each[0]))
    return {"total": len(words), "words": [{"word": word, "count": count} for word, count in counted[:most]]}
