"""Being told to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """The first SIGTERM or SIGINT asks to stop; a second one ends the process at once."""

    def __init__(self) -> None:
        self._asked = False
        self._call: Callable[[], object] | None = None

    def when_asked(self, call: Callable[[], object]) -> None:
        """Call this when the process is to stop; at once if it is already."""
        self._call = call
        if self._asked:
            call()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._asked = True
        if self._call is not None:
            self._call()


@contextmanager
def stop_signals() -> Iterator[Signals]:
    """Receive the signals here until the block ends. Only in the main thread."""
    signals = Signals()
    previous = {number: signal.signal(number, signals._receive) for number in _STOPPING}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
