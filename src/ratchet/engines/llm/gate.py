"""The gate before an endpoint: how many calls may be open, and how many begin in a minute.

One gate serves every session of the process, whichever thread and event loop it runs in. Who came first goes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from ratchet.config.llm_settings import Endpoint

_MINUTE = 60.0
# An endpoint that asks for a year is asked again sooner.
_LONGEST_PAUSE = 600.0


class Closed(Exception):
    """The endpoint asked for a pause that is longer than the caller wants to wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it asked for a pause of {seconds:.0f} s")
        self.seconds = seconds


class _Waiter:
    """One caller in the queue, woken from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed, so nobody waits there any more
            self._loop.call_soon_threadsafe(self._woken.set)

    async def sleep(self, seconds: float) -> None:
        """Until woken, at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                await self._woken.wait()
        self._woken.clear()


class Gate:
    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = endpoint
        self._clock = clock
        self._open = 0
        self._begun: deque[float] = deque()
        self._used: deque[tuple[float, int]] = deque()
        self._closed_until = -math.inf
        self._queue: deque[_Waiter] = deque()
        # Sessions run in several threads; every field above changes only under it.
        self._lock = threading.Lock()

    @contextlib.asynccontextmanager
    async def passing(self, patience: float) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the block. Raises `Closed` rather than wait out a long pause."""
        await self._enter(patience)
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                self._wake_first()

    def used(self, tokens: int) -> None:
        """Tell how many tokens a call took."""
        if self._limits.tokens_per_minute is not None:
            with self._lock:
                self._used.append((self._clock(), tokens))

    def close_for(self, seconds: float) -> None:
        """Let nobody pass for a while: the endpoint asked for it."""
        with self._lock:
            self._closed_until = max(self._closed_until, self._clock() + min(seconds, _LONGEST_PAUSE))
            # The first may not want to wait that long; leaving, it wakes the one behind it.
            self._wake_first()

    async def _enter(self, patience: float) -> None:
        waiter = _Waiter()
        with self._lock:
            self._queue.append(waiter)
        try:
            while True:
                with self._lock:
                    pause = self._pause(waiter, patience)
                    if pause == 0:
                        self._open += 1
                        self._begin()
                        return
                await waiter.sleep(pause)
        finally:
            with self._lock:
                self._queue.remove(waiter)
                self._wake_first()

    def _pause(self, waiter: _Waiter, patience: float) -> float:
        """How long `waiter` still has to wait; for ever means until it is woken."""
        now = self._clock()
        closed = self._closed_until - now
        if closed > patience:
            raise Closed(closed)
        if self._queue[0] is not waiter or self._open >= self._limits.concurrency:
            return math.inf
        return max(0.0, closed, self._until_rate(now))

    def _until_rate(self, now: float) -> float:
        limits = self._limits
        if limits.requests_per_minute is not None:
            while self._begun and self._begun[0] <= now - _MINUTE:
                self._begun.popleft()
            if len(self._begun) >= limits.requests_per_minute:
                return self._begun[0] + _MINUTE - now
        if limits.tokens_per_minute is not None:
            while self._used and self._used[0][0] <= now - _MINUTE:
                self._used.popleft()
            if sum(tokens for _, tokens in self._used) >= limits.tokens_per_minute:
                return self._used[0][0] + _MINUTE - now
        return 0.0

    def _begin(self) -> None:
        if self._limits.requests_per_minute is not None:
            self._begun.append(self._clock())

    def _wake_first(self) -> None:
        if self._queue:
            self._queue[0].wake()


_gates: dict[tuple[str, Endpoint], Gate] = {}
# Two sessions that ask for a new gate at once must get the same one.
_gates_lock = threading.Lock()


def gate_of(url: str, endpoint: Endpoint) -> Gate:
    """The one gate that this process has for an endpoint with these limits."""
    with _gates_lock:
        return _gates.setdefault((url, endpoint), Gate(endpoint))
