"""A file of lines that only grows, read from its end or from its middle: what a look costs does not grow with it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ratchet.agentkit.errors import HistoryDamaged

_CHUNK = 64 * 1024


class Lines:
    """The whole lines of an open file. What comes behind the last newline is no line yet."""

    def __init__(self, descriptor: int, *, longest: int) -> None:
        self._descriptor = descriptor
        self._longest = longest
        self.size = os.fstat(descriptor).st_size
        self.end = self.start_of(self.size)
        """Behind the last whole line."""

    def start_of(self, offset: int) -> int:
        """Where the line begins in which `offset` lies; behind a newline, that is `offset` itself."""
        at = offset
        while at > 0:
            below = max(0, at - _CHUNK)
            newline = os.pread(self._descriptor, at - below, below).rfind(b"\n")
            if newline >= 0:
                return below + newline + 1
            at = below
            self._check_length(offset - at)
        return 0

    def line(self, start: int) -> bytes:
        """The line that begins at `start`, without its newline."""
        gathered = bytearray()
        while True:
            chunk = os.pread(self._descriptor, _CHUNK, start + len(gathered))
            newline = chunk.find(b"\n")
            gathered += chunk if newline < 0 else chunk[:newline]
            if newline >= 0 or not chunk:
                return bytes(gathered)
            self._check_length(len(gathered))

    def head(self, start: int, size: int) -> bytes:
        """The first bytes of the line that begins at `start`, or of the lines behind it too."""
        return os.pread(self._descriptor, size, start)

    def tail(self) -> bytes:
        """What lies behind the last whole line."""
        self._check_length(self.size - self.end)
        return os.pread(self._descriptor, self.size - self.end, self.end)

    def backwards(self, end: int) -> Iterator[tuple[int, bytes]]:
        """Each line below `end` and where it begins, the last one first."""
        while end > 0:
            start = self.start_of(end - 1)
            yield start, self.line(start)
            end = start

    def forwards(self, start: int) -> Iterator[bytes]:
        """Each line from `start` on."""
        while start < self.end:
            line = self.line(start)
            yield line
            start += len(line) + 1

    def _check_length(self, length: int) -> None:
        if length > self._longest:
            raise HistoryDamaged(f"a line is longer than {self._longest:,} bytes", hint="move the file away")
