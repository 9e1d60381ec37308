"""How often a server has crashed of late, and what follows from it."""

from __future__ import annotations

import time
from collections import deque

from ratchet.config.agent_settings import Agents


class Crashes:
    """Crashes count for `crash_seconds`; a server that stays up for so long begins anew."""

    def __init__(self, settings: Agents) -> None:
        self._settings = settings
        self._times: deque[float] = deque()

    def add(self) -> None:
        self._times.append(time.monotonic())

    def forget(self) -> None:
        self._times.clear()

    @property
    def count(self) -> int:
        while self._times and self._times[0] <= time.monotonic() - self._settings.crash_seconds:
            self._times.popleft()
        return len(self._times)

    @property
    def too_many(self) -> bool:
        return self.count >= self._settings.crashes

    @property
    def pause(self) -> float:
        return pause_after(self.count, self._settings)


def pause_after(failures: int, settings: Agents) -> float:
    """Seconds until the next try; each failure doubles them."""
    # Doubled often enough, a number has no end; the cap is reached long before.
    return min(settings.restart_seconds * 2.0 ** min(failures - 1, 30), settings.restart_cap_seconds)
