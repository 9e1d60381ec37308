"""A process that is asked from an event loop: questions are said at once, and answers come in their order.

Nobody waits for the answer to another's question before asking, and no thread is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections import deque
from collections.abc import Callable
from typing import IO, cast

_CHUNK = 65536
# What fits into a pipe, whatever the other end does.
_UNREAD_BYTES = 32 * 1024


class Dialogue:
    """One process, started by `start` when it is first asked and again when it died; every answer has `lines` lines.

    It serves one event loop at a time. One that does not answer within `seconds` is ended.
    """

    def __init__(
        self, start: Callable[[], subprocess.Popen[bytes]], *, lines: int, seconds: float = 60.0
    ) -> None:
        self._start = start
        self._lines = lines
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[tuple[asyncio.Future[list[bytes]], int]] = deque()
        self._unread = 0
        self._buffer = b""

    async def ask(self, question: bytes) -> list[bytes] | None:
        """The lines of the answer: none if it died before, over this question or another. `None` if it cannot be asked
        now, because it cannot be started, has too much to read or answers to another event loop."""
        loop = asyncio.get_running_loop()
        if self._process is not None and self._owner != os.getpid():
            self._forget()
        if self._loop is not None and self._loop.is_closed():
            self.close()  # with answers that nobody waits for any more
        busy = bool(self._waiting)
        if self._unread + len(question) > _UNREAD_BYTES or (busy and loop is not self._loop):
            return None
        try:
            process = self._running()
        except OSError:
            return None
        answer: asyncio.Future[list[bytes]] = loop.create_future()
        self._waiting.append((answer, len(question)))
        self._unread += len(question)
        if not busy:
            self._loop = loop
            loop.add_reader(cast(IO[bytes], process.stdout).fileno(), self._hear)
        with contextlib.suppress(BrokenPipeError):  # its end is read where the answer would be
            self._say(process, question)
        try:
            async with asyncio.timeout(self._seconds):
                return await answer
        except TimeoutError:
            self.close()
            return []

    def close(self) -> None:
        """End the process. Whoever waits is told of no lines. Any thread may do so."""
        if self._owner != os.getpid():
            self._forget()  # forked: the process and those who wait are the parent's
            return
        if self._loop is not None and not self._loop.is_closed() and self._loop is not _running_loop():
            # The loop must forget the pipe before it is closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.close)
                return
        process, self._process, self._buffer, self._unread = self._process, None, b"", 0
        waiting, self._waiting = self._waiting, deque()
        if process is None:
            return
        out = cast(IO[bytes], process.stdout)
        self._leave(out)
        process.kill()
        process.wait()
        _close_pipes(process)
        for answer, _ in waiting:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                answer.get_loop().call_soon_threadsafe(_tell, answer, [])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = self._start()
            self._owner = os.getpid()
        return self._process

    def _forget(self) -> None:
        """Let go of what a fork has inherited, without touching what it shares with its parent."""
        process, self._process, self._loop = self._process, None, None
        self._waiting, self._buffer, self._unread = deque(), b"", 0
        if process is not None:
            _close_pipes(process)

    def _say(self, process: subprocess.Popen[bytes], question: bytes) -> None:
        rest = memoryview(question)
        while rest:
            rest = rest[os.write(cast(IO[bytes], process.stdin).fileno(), rest) :]

    def _hear(self) -> None:
        assert self._process is not None
        out = cast(IO[bytes], self._process.stdout)
        data = os.read(out.fileno(), _CHUNK)
        if not data:
            self.close()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        while len(lines) >= self._lines and self._waiting:
            told, lines = lines[: self._lines], lines[self._lines :]
            answer, size = self._waiting.popleft()
            self._unread -= size
            _tell(answer, told)
        self._buffer = b"".join(line + b"\n" for line in lines) + self._buffer
        if not self._waiting and self._buffer:
            self.close()  # nobody has asked for this: it is out of step
        elif not self._waiting:
            self._leave(out)

    def _leave(self, out: IO[bytes]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.remove_reader(out.fileno())
            self._loop = None


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            cast(IO[bytes], pipe).close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _tell(answer: asyncio.Future[list[bytes]], told: list[bytes]) -> None:
    if not answer.done():  # whoever asked may have been cancelled
        answer.set_result(told)
