"""Waiting for what must happen, however busy the machine is.

The bound is there for what never happens. It is far beyond any load, so nobody chooses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 240.0


def eventually(check: Callable[[], object]) -> None:
    """Wait until `check` holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


async def eventually_async(check: Callable[[], object]) -> None:
    """Wait until `check` holds, and let the event loop continue."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
