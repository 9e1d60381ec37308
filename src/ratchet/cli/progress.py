"""Showing on stderr that long work goes on."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from ratchet.cli.output import note

# Less than ten, so that a busy machine is in time as well.
_EVERY_SECONDS = 8.0


@contextlib.contextmanager
def working(what: str, *, every_seconds: float = _EVERY_SECONDS) -> Iterator[None]:
    """A moving line with `what` until the block ends; where nobody watches, a line each time it was silent long."""
    if not sys.stderr.isatty():
        with _beating(what, every_seconds):
            yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …"):
        yield


@contextlib.contextmanager
def _beating(what: str, every_seconds: float) -> Iterator[None]:
    ended, began = threading.Event(), time.monotonic()

    def beat() -> None:
        while not ended.wait(every_seconds):
            note(f"{what}: {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=beat, name="ratchet-working", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
