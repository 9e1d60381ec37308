"""One run as this process sees it: its descriptors and pipes, its output and input, and the socket that ends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import time
import weakref
from collections.abc import Callable
from typing import Any

from ratchet.sandbox.result import Broken, Stopped

_CROWDED = {errno.EMFILE, errno.ENFILE}
_PATIENCE_SECONDS, _PAUSE_SECONDS = 30.0, 0.01

# Ends that only this process may hold: their closing is how the other side knows that it died.
_ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def socket_pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """Our end and theirs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    _ours.add(ours)
    return ours, theirs


def close_all() -> None:
    for each in list(_ours):
        each.close()


class Wiring:
    """A line over which the run is ended and reported, and pipes for its output and, if wanted, its input."""

    def __init__(self, *, with_input: bool) -> None:
        self._open: list[int] = []
        self._given: list[int] = []
        self.line, self._their_line = socket_pair(socket.SOCK_STREAM)
        try:
            given_input = [self._pipe(ours=1)] if with_input else []
            self.stdout, self.stderr = self._pipe(ours=0), self._pipe(ours=0)
            self.stdin = given_input[0] if given_input else None
        except OSError:
            self.close()
            raise

    @property
    def theirs(self) -> list[int]:
        """What the run gets: stdin if there is one, stdout, stderr, line."""
        return [*self._given, self._their_line.fileno()]

    def let_go(self) -> None:
        """Close what was given away, or is no longer to be."""
        self._their_line.close()
        while self._given:
            os.close(self._given.pop())

    def close(self) -> None:
        """Close everything, when there will be no run."""
        self.let_go()
        self.line.close()
        while self._open:
            os.close(self._open.pop())

    def _pipe(self, *, ours: int) -> int:
        ends = os.pipe2(os.O_CLOEXEC)
        self._open.append(ends[ours])
        self._given.append(ends[1 - ours])
        return ends[ours]


async def new_wiring(*, with_input: bool) -> Wiring:
    """Wiring for a run; waits while this process has as many descriptors open as it may."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return Wiring(with_input=with_input)
        except OSError as error:
            if error.errno not in _CROWDED or time.monotonic() > deadline:
                raise Broken(
                    f"no descriptors for another run: {error.strerror}",
                    hint="run fewer at once, or raise `ulimit -n`",
                ) from error
        await asyncio.sleep(_PAUSE_SECONDS)


# As much as a pipe holds, so nobody writes faster than about 6 MiB a second to one that is drained.
_CHUNK = 64 * 1024
_DRAIN_PAUSE_SECONDS = 0.01


class Output:
    """What a run writes, read no further than its bound: as it comes from when `listen` was called, or at the end.

    Each piece is handed to `overhear`, if somebody wants it before the end; after that `changed` is called.
    """

    def __init__(
        self,
        descriptor: int,
        most_bytes: int,
        changed: Callable[[], None],
        overhear: Callable[[bytes], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._most_bytes = most_bytes
        self._total = 0
        self._changed = changed
        self._overhear = overhear
        self._listening = False
        self.held = bytearray()
        os.set_blocking(descriptor, False)

    def listen(self) -> None:
        if self._descriptor is not None:
            self._listening = True
            self._loop.add_reader(self._descriptor, self._read)

    @property
    def over(self) -> bool:
        """Whether more came than the bound allows."""
        return self._total > self._most_bytes

    def finish(self) -> None:
        """Read what is still in the pipe, once nobody is left who writes to it."""
        while self._descriptor is not None and self._read():
            pass
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            if self._listening:
                self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> bool:
        """Take one piece. Whether the next may be there already."""
        assert self._descriptor is not None
        try:
            piece = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        kept = piece[: max(0, self._most_bytes - self._total)]
        self.held += kept
        self._total += len(piece)
        if kept and self._overhear is not None:
            self._overhear(kept)
        if not piece or self.over:
            self.close()
        self._changed()
        return bool(piece)


class Drain:
    """What a run writes, handed to `hear` as it comes and held by nobody here, however much it is.

    It is read with a pause after each piece: a flood makes the run wait, not this process.
    """

    def __init__(self, descriptor: int, hear: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._hear = hear
        self._pause: asyncio.TimerHandle | None = None
        self.held = bytearray()
        self.over = False
        os.set_blocking(descriptor, False)

    def listen(self) -> None:
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._read)

    def finish(self) -> None:
        """Hand on what is still in the pipe, once nobody is left who writes to it."""
        while self._take():
            pass
        self.close()

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> None:
        assert self._descriptor is not None
        self._loop.remove_reader(self._descriptor)
        if self._take() == b"":
            self.close()
        else:
            self._pause = self._loop.call_later(_DRAIN_PAUSE_SECONDS, self.listen)

    def _take(self) -> bytes | None:
        """Hand on one piece; empty at the end of the pipe, `None` if nothing is there now."""
        if self._descriptor is None:
            return None
        try:
            piece = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return None
        if piece:
            self._hear(piece)
        return piece


class Input:
    """Feeds a run its stdin as fast as it reads. A run need not read all of it."""

    def __init__(self, descriptor: int, content: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._rest = memoryview(content)
        os.set_blocking(descriptor, False)
        self._loop.add_writer(descriptor, self._write)
        self._write()

    def close(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self) -> None:
        if self._descriptor is None:
            return
        with contextlib.suppress(BrokenPipeError):
            while self._rest:
                try:
                    self._rest = self._rest[os.write(self._descriptor, self._rest) :]
                except BlockingIOError:
                    return
        self.close()


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
