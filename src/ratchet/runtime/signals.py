"""Being told to stop."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """SIGTERM and SIGINT, or `numbers`, received here until the block ends. Only in the main thread.

    The first asks to stop; a second ends the process at once, and others take its jobs over.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers = numbers or _STOPPING
        self._asked = False
        self._call: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        # Python runs a handler only when the main thread continues, and one that has just begun to wait for a lock or a
        # pipe of ours does not. The interpreter itself writes to this pipe, so the wait always ends.
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._previous_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._receive) for number in self._numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self) -> None:
        """Wait until the process is to stop."""
        while not self._asked:
            os.read(self._reader, 1)

    def when_asked(self, call: Callable[[], object]) -> None:
        """Call this when the process is to stop; at once if it is already."""
        self._call = call
        if self._asked:
            call()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            os.write(sys.stderr.fileno(), b"told twice: ending at once\n")
            os._exit(128 + number)
        self._asked = True
        if self._call is not None:
            self._call()
