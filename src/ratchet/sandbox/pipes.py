"""The pipes of a run, seen from this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

# As much as a pipe holds, so nobody writes faster than about 6 MiB a second to one that is drained.
_CHUNK = 64 * 1024
_DRAIN_PAUSE_SECONDS = 0.01


class Output:
    """What a run writes, read no further than its bound: as it comes from when `listen` was called, or at the end.

    Each piece is handed to `overhear`, if somebody wants it before the end; after that `changed` is called.
    """

    def __init__(
        self,
        descriptor: int,
        most_bytes: int,
        changed: Callable[[], None],
        overhear: Callable[[bytes], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._most_bytes = most_bytes
        self._total = 0
        self._changed = changed
        self._overhear = overhear
        self._listening = False
        self.held = bytearray()
        os.set_blocking(descriptor, False)

    def listen(self) -> None:
        if self._descriptor is not None:
            self._listening = True
            self._loop.add_reader(self._descriptor, self._read)

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
            if self._listening:
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
        kept = piece[: max(0, self._most_bytes - self._total)]
        self.held += kept
        self._total += len(piece)
        if kept and self._overhear is not None:
            self._overhear(kept)
        if not piece or self.over:
            self.close()
        self._changed()
        return bool(piece)


class Drain:
    """What a run writes, handed to `hear` as it comes and held by nobody here, however much it is.

    It is read with a pause after each piece: a flood makes the run wait, not this process.
    """

    def __init__(self, descriptor: int, hear: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._hear = hear
        self._pause: asyncio.TimerHandle | None = None
        self.held = bytearray()
        self.over = False
        os.set_blocking(descriptor, False)

    def listen(self) -> None:
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._read)

    def finish(self) -> None:
        """Hand on what is still in the pipe, once nobody is left who writes to it."""
        while self._take():
            pass
        self.close()

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> None:
        assert self._descriptor is not None
        self._loop.remove_reader(self._descriptor)
        if self._take() == b"":
            self.close()
        else:
            self._pause = self._loop.call_later(_DRAIN_PAUSE_SECONDS, self.listen)

    def _take(self) -> bytes | None:
        """Hand on one piece; empty at the end of the pipe, `None` if nothing is there now."""
        if self._descriptor is None:
            return None
        try:
            piece = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return None
        if piece:
            self._hear(piece)
        return piece


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
