"""Telling what happens while it happens: a line for each thing, with who did it and when."""

from __future__ import annotations

import threading
import time
from typing import TextIO

_WIDTH = 10
_COLOURS = {"durability": 35, "research": 32, "agents": 36, "workflows": 33, "protocols": 34}


class Teller:
    """Writes lines to `out` from any thread, each whole."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()
        self._coloured = out.isatty()
        # Keeps a line in one piece.
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def say(self, text: str = "") -> None:
        """A line that belongs to no act."""
        self._write(text)

    def of(self, act: str, text: str) -> None:
        """A line of an act. Text may come from anywhere, and a terminal obeys control characters."""
        plain = "".join(each if each.isprintable() else " " for each in text)
        name = f"{act:<{_WIDTH}}"
        shown = f"\x1b[{_COLOURS.get(act, 0)}m{name}\x1b[0m" if self._coloured else name
        self._write(f"{self.seconds:6.1f} s  {shown}  {plain}")

    def _write(self, line: str) -> None:
        with self._lock:
            print(line, file=self._out, flush=True)
