"""One run as this process sees it: its output, its input, and the line over which it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

from ratchet.sandbox.errors import Broken
from ratchet.sandbox.finished import Stopped
from ratchet.sandbox.pipes import Drain, Input, Output
from ratchet.sandbox.wiring import Wiring

_MOST_REPORT_BYTES = 64 * 1024
_LEAVING_SECONDS = 5.0


class Exchange:
    """Belongs to the event loop in which it was made. `ended` is done once nothing of the run is left.

    Its value is the report of the sandbox, or `None` if the sandbox died without one.
    """

    def __init__(
        self,
        wiring: Wiring,
        stdin: bytes,
        *,
        most_bytes: int,
        hear: Callable[[bytes], None] | None = None,
        overhear: Callable[[bytes], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = wiring.line
        self._report = b""
        self.stopped: Stopped | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.ended: asyncio.Future[dict[str, Any] | None] = self._loop.create_future()
        self.stdout: Output | Drain
        self.stderr: Output | Drain
        if hear is None:
            self.stdout = Output(wiring.stdout, most_bytes, self._changed)
            self.stderr = Output(wiring.stderr, most_bytes, self._changed, overhear)
        else:
            self.stdout, self.stderr = Drain(wiring.stdout, hear), Drain(wiring.stderr, hear)
        self._input = None if wiring.stdin is None else Input(wiring.stdin, stdin)
        self._line.setblocking(False)
        self._loop.add_reader(self._line.fileno(), self._hear)

    async def report(self, seconds: float) -> dict[str, Any] | None:
        """What the sandbox said at the end. Raises `Broken` if that does not come in time."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self.ended)
        except TimeoutError:
            self.close()
            raise Broken(f"the sandbox did not end a run within {seconds:g} s") from None

    async def leave(self) -> None:
        """End the run if it has not ended, and wait until it is gone, also while this task is being cancelled."""
        if self.ended.done():
            return
        self.stop(Stopped.CANCELLED)
        try:
            await self.report(_LEAVING_SECONDS)
        except Broken:
            return  # the line is closed; more cannot be done
        finally:
            self.close()

    def stop(self, reason: Stopped) -> None:
        """End the run; `ended` follows. The first reason stands."""
        if self.stopped is None and not self.ended.done():
            self.stopped = reason
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go of everything; a run that has not ended is ended by that."""
        if self._line.fileno() >= 0:
            self._loop.remove_reader(self._line.fileno())
            self._line.close()
        if self._input is not None:
            self._input.close()
        self.stdout.close()
        self.stderr.close()
        if not self.ended.done():
            self.ended.set_result(None)
        self.on_change()

    def _changed(self) -> None:
        if self.stdout.over or self.stderr.over:
            self.stop(Stopped.OUTPUT)
        self.on_change()

    def _hear(self) -> None:
        try:
            piece = self._line.recv(_MOST_REPORT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self._report += piece
        if piece:
            return
        # Every process of the run is dead, so what the pipes hold now is all there will be.
        self.stdout.finish()
        self.stderr.finish()
        with contextlib.suppress(ValueError):  # half a report is none
            self.ended.set_result(json.loads(self._report))
        self.close()
