"""Ctrl-C as an event, where an exception in the middle of a query could leave a broken connection behind."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupted() -> Iterator[threading.Event]:
    """Is set by the first Ctrl-C while the block runs; a second one is an exception as usual."""
    asked = threading.Event()
    previous = signal.getsignal(signal.SIGINT)

    def ask(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, previous)
