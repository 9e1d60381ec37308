"""How long a text is, and how it is made up."""

from __future__ import annotations

import re
from typing import Any

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_END = re.compile(r"[.!?…]+(?:\s|$)")


def run(text: str) -> dict[str, Any]:
    words = _WORD.findall(text)
    sentences = len(_END.findall(text)) or (1 if words else 0)
    return {
        "characters": len(text),
        "words": len(words),
        "different_words": len({word.casefold() for word in words}),
        "sentences": sentences,
        "lines": len(text.splitlines()),
        "paragraphs": sum(1 for part in re.split(r"\n\s*\n", text) if part.strip()),
        "words_per_sentence": round(len(words) / sentences, 2) if sentences else 0,
    }
