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
    """Belongs to the event loop in which it was made. `ended` is set once nothing of the run is left.

    Output is listened to after `patience_seconds`. A run that ends before is read in one go at its end, which costs far
    less; one that writes more than a pipe holds waits that long, once.
    """

    def __init__(
        self,
        wiring: Wiring,
        stdin: bytes,
        *,
        most_bytes: int,
        hear: Callable[[bytes], None] | None = None,
        overhear: Callable[[bytes], None] | None = None,
        patience_seconds: float = 0.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = wiring.line
        self._said = b""
        self._told: dict[str, Any] | None = None
        self._late = False
        self.stopped: Stopped | None = None
        self.on_change: Callable[[], None] | None = None
        self.ended = asyncio.Event()
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
        self._patience = self._loop.call_later(patience_seconds, self._listen) if patience_seconds else None
        if self._patience is None:
            self._listen()

    async def report(self, seconds: float) -> dict[str, Any] | None:
        """What the sandbox said at the end, `None` if it died without a word. Raises `Broken` if it is late."""
        timer = self._loop.call_later(seconds, self._give_up)
        try:
            await self.ended.wait()
        finally:
            timer.cancel()
        if self._late:
            raise Broken(f"the sandbox did not end a run within {seconds:g} s")
        return self._told

    async def leave(self) -> None:
        """End the run if it has not ended, and wait until it is gone, also while this task is being cancelled."""
        if self.ended.is_set():
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
        if self.stopped is None and not self.ended.is_set():
            self.stopped = reason
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go of everything; a run that has not ended is ended by that."""
        if self._line.fileno() >= 0:
            self._loop.remove_reader(self._line.fileno())
            self._line.close()
        if self._patience is not None:
            self._patience.cancel()
        if self._input is not None:
            self._input.close()
        self.stdout.close()
        self.stderr.close()
        self.ended.set()
        if self.on_change is not None:
            self.on_change()

    def _give_up(self) -> None:
        self._late = not self.ended.is_set()
        self.close()

    def _listen(self) -> None:
        self.stdout.listen()
        self.stderr.listen()

    def _changed(self) -> None:
        if self.stdout.over or self.stderr.over:
            self.stop(Stopped.OUTPUT)
        if self.on_change is not None:
            self.on_change()

    def _hear(self) -> None:
        try:
            piece = self._line.recv(_MOST_REPORT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self._said += piece
        if piece and not piece.endswith(b"\n"):
            return
        # Every process of the run is dead, so what the pipes hold now is all there will be.
        self.stdout.finish()
        self.stderr.finish()
        with contextlib.suppress(ValueError):  # half a report is none
            self._told = json.loads(self._said)
        self.close()
