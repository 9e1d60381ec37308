"""Being told to stop."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


class StopSignal:
    """SIGTERM or SIGINT. The first asks to stop; a second ends the process at once, and others take its jobs over."""

    def __init__(self) -> None:
        self._asked = False
        # Python runs a handler only when the main thread goes on, and one that has just begun to wait for a lock or a
        # pipe of ours does not. The interpreter itself writes to this pipe, so the wait always ends.
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def wait(self) -> None:
        while not self._asked:
            os.read(self._reader, 1)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            os.write(sys.stderr.fileno(), b"told twice: ending at once\n")
            os._exit(128 + number)
        self._asked = True
