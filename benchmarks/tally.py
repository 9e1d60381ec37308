"""What jobs leave behind: a byte or a time in a file, the same for every contender.

A job's own process writes, whichever that is, so nothing of a contender's own book-keeping is in the way.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

# Starts like the variables of the test-suite, which Ratchet's own configuration leaves alone.
VARIABLE = "RATCHET_TEST_TALLY"


@functools.cache
def _file() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def tick() -> None:
    """The work of a job that does nothing."""
    os.write(_file(), b".")


def stamp(sent: int) -> None:
    """Note how long it took from `sent` until now. The steady clock is the same in every process."""
    os.write(_file(), f"{time.monotonic_ns() - sent}\n".encode())


def count(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def stamps(path: Path) -> list[float]:
    """Milliseconds from each `sent` to its start."""
    try:
        return [int(line) / 1e6 for line in path.read_text().split()]
    except FileNotFoundError:
        return []
