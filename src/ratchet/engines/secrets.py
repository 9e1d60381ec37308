"""Keeping keys out of everything that is said: an endpoint may send back what it was given."""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.config.database_url import MASK

# Shorter ones are placeholders; hiding them would only spoil the text.
_SHORTEST = 6


class Secrets:
    def __init__(self, values: Iterable[str]) -> None:
        self._values = sorted({each for each in values if len(each) >= _SHORTEST}, key=len, reverse=True)

    def hide(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, MASK)
        return text

    def held_back(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a secret."""
        longest = 0
        for value in self._values:
            for length in range(min(len(value) - 1, len(text)), longest, -1):
                if value.startswith(text[-length:]):
                    longest = length
                    break
        return longest
