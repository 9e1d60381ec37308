"""The pipes of a run, seen from this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

_CHUNK = 256 * 1024


class Output:
    """What a run writes, read as it comes and no further than its bound. `changed` is called after each piece."""

    def __init__(self, descriptor: int, most_bytes: int, changed: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._most_bytes = most_bytes
        self._total = 0
        self._changed = changed
        self.held = bytearray()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    @property
    def over(self) -> bool:
        """Whether more came than the bound allows."""
        return self._total > self._most_bytes

    def finish(self) -> None:
        """Read what is still in the pipe, once nobody is left who writes to it."""
        while self._descriptor is not None and self._read():
            pass
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> bool:
        """Take one piece. Whether the next may be there already."""
        assert self._descriptor is not None
        try:
            piece = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        self.held += piece[: max(0, self._most_bytes - self._total)]
        self._total += len(piece)
        if not piece or self.over:
            self.close()
        self._changed()
        return bool(piece)


class Input:
    """Feeds a run its stdin as fast as it reads. A run need not read all of it."""

    def __init__(self, descriptor: int, content: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._rest = memoryview(content)
        os.set_blocking(descriptor, False)
        self._loop.add_writer(descriptor, self._write)
        self._write()

    def close(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self) -> None:
        if self._descriptor is None:
            return
        with contextlib.suppress(BrokenPipeError):
            while self._rest:
                try:
                    self._rest = self._rest[os.write(self._descriptor, self._rest) :]
                except BlockingIOError:
                    return
        self.close()
