"""A complaint that is made again and again, and need not be heard each time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_AGAIN_SECONDS = 60.0


class Complaint:
    """Warns of something that goes wrong, at once and then every minute, and says when it is over."""

    def __init__(
        self, log: logging.Logger, what: str, over: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._what = what
        self._over = over
        self._clock = clock
        self._said: tuple[float, str] | None = None

    def make(self, why: object) -> None:
        now, text = self._clock(), str(why)
        if self._said is None or self._said[1] != text or now >= self._said[0] + _AGAIN_SECONDS:
            self._said = (now, text)
            self._log.warning("%s: %s", self._what, text)

    def end(self) -> None:
        if self._said is not None:
            self._said = None
            self._log.warning("%s", self._over)
