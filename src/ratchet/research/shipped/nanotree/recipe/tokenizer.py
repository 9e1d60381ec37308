"""From words to numbers and back."""

from __future__ import annotations

from collections import Counter

SPLIT = False  # search: True | False
LEAST = 1  # search: 1..6

UNKNOWN, START = 0, 1


class Tokenizer:
    """The words that occur at least `LEAST` times. With `SPLIT` the final s of a known word is a token of its own."""

    def __init__(self, text: str) -> None:
        self._known = Counter(text.split())
        counts = Counter(piece for word in text.split() for piece in self._pieces(word))
        kept = sorted(piece for piece, count in counts.items() if count >= LEAST)
        self._numbers = {piece: number for number, piece in enumerate(kept, start=2)}

    def __len__(self) -> int:
        return len(self._numbers) + 2

    def encode(self, text: str) -> list[int]:
        return [self._numbers.get(piece, UNKNOWN) for word in text.split() for piece in self._pieces(word)]

    def _pieces(self, word: str) -> tuple[str, ...]:
        if SPLIT and word.endswith("s") and self._known[word[:-1]]:
            return word[:-1], "+s"
        return (word,)
