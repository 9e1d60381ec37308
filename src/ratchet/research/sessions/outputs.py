"""What a tool answers, cut to what a model should read at once, and the rest of it for when it is asked for."""

from __future__ import annotations

from collections import OrderedDict

MOST = 16 * 1024
"""The bytes of one answer."""
_KEPT = 8 * 1024 * 1024
# Room for the line that says how to read on.
_NOTE = 200


class Outputs:
    """The long answers of one session, oldest forgotten first."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        self._last = 0

    def capped(self, answer: str) -> str:
        """The answer itself, or its beginning and how to read the rest."""
        # Paths and diffs may hold bytes that are no text, which cannot be sent.
        whole = answer.encode(errors="replace")
        if len(whole) <= MOST:
            return whole.decode()
        self._last += 1
        self._texts[self._last] = whole
        while len(self._texts) > 1 and sum(map(len, self._texts.values())) > _KEPT:
            self._texts.popitem(last=False)
        return self._part(self._last, 0)

    def read(self, number: int, offset: int) -> str | None:
        """A part of a long answer; `None` if there is no such answer (any more)."""
        return self._part(number, offset) if number in self._texts else None

    def _part(self, number: int, offset: int) -> str:
        whole = self._texts[number]
        part = whole[offset : offset + MOST - _NOTE]
        if offset + len(part) < len(whole):
            # Not in the middle of a character.
            part = part.decode(errors="ignore").encode()
        end = offset + len(part)
        text = part.decode(errors="replace")
        if end >= len(whole):
            return text
        how = f"read_output with output={number} and offset={end}"
        return f"{text}\n[cut: {len(whole) - end} of {len(whole)} bytes are left; {how} reads on]"
