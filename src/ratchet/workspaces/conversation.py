"""A git command that is kept running and answers one question after another.

Starting git costs milliseconds, asking a running one a tenth of that. It ends by itself when our end of its pipe
closes, so a killed process leaves none behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from ratchet.kernel import RatchetError
from ratchet.workspaces.errors import GitFailed
from ratchet.workspaces.git import Git, failure, not_runnable

_CHUNK = 65536


class Conversation:
    """One git process. Everything said and read happens in a `turn`."""

    def __init__(
        self, git: Git, *words: str, cwd: Path | None = None, seconds: float = 60.0, **environment: str
    ) -> None:
        # Answers carry no names: question and answer must not mix with those of another thread.
        self._turn = threading.Lock()
        self._git = git
        self._words = words
        self._cwd = cwd or git.directory
        self._seconds = seconds
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._end: weakref.finalize[..., Conversation] | None = None
        self._pid = 0
        self._buffer = b""

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the process for questions and their whole answers. One that breaks off is ended: it is out of step."""
        with self._turn:
            try:
                yield
            except BaseException:
                self.stop()
                raise

    def say(self, data: bytes) -> None:
        """Send a question; starts the process when none runs. At most a pipe's 64 KiB before the answers are read."""
        pipe = cast(IO[bytes], self._running().stdin)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(pipe.fileno(), rest) :]
        except BrokenPipeError:
            raise self.ended() from None

    def line(self) -> bytes:
        """The next line of the answer, without its end."""
        return self.until(b"\n")

    def until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._buffer += self._more()
        found, _, self._buffer = self._buffer.partition(end)
        return found

    def exactly(self, size: int) -> bytes:
        parts, have = [self._buffer], len(self._buffer)
        while have < size:
            parts.append(self._more())
            have += len(parts[-1])
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def ended(self) -> RatchetError:
        """The process is gone: why, as a typed error. The next question starts another one."""
        said = self.complaint()
        self.stop()
        return failure(said, self._git.directory, self._words[0])

    def complaint(self) -> bytes:
        """What the process has said on its standard error so far; waits for the end of one that is ending."""
        if self._process is not None and self._errors is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)
            self._errors.seek(0)
            return self._errors.read()
        return b""

    def stop(self) -> None:
        self._process, self._errors, self._buffer = None, None, b""
        if self._end is not None:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._pid != os.getpid():
            self.stop()  # forked: the process belongs to the parent
        if self._process is None:
            self._errors = cast(IO[bytes], tempfile.TemporaryFile())  # noqa: SIM115 - lives as long as the process
            try:
                self._process = subprocess.Popen(
                    [self._git.program, *self._words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    bufsize=0,
                    cwd=self._cwd,
                    env=self._git.environment(**self._environment),
                    start_new_session=True,
                )
            except OSError as error:
                self._errors.close()
                self._errors = None
                raise not_runnable(self._git, error) from error
            self._pid = os.getpid()
            # Also for a repository that nobody closed, as when a task is cancelled between two of its steps.
            self._end = weakref.finalize(self, _end, self._process, self._errors, self._pid)
        return self._process

    def _more(self) -> bytes:
        process = self._process
        if process is None:
            raise GitFailed(f"git {self._words[0]} was stopped in {self._git.directory}")
        out = cast(IO[bytes], process.stdout)
        deadline = time.monotonic() + self._seconds
        poll = select.poll()
        poll.register(out, select.POLLIN)
        while not poll.poll(max(0, deadline - time.monotonic()) * 1000):
            if time.monotonic() >= deadline:
                self.stop()
                raise GitFailed(
                    f"git {self._words[0]} gave no answer for {self._seconds:g} s in {self._git.directory}",
                    hint="see whether the disk answers",
                )
        data = os.read(out.fileno(), _CHUNK)
        if not data:
            raise self.ended()
        return data


def _end(process: subprocess.Popen[bytes], errors: IO[bytes], pid: int) -> None:
    """End the process, unless it belongs to a parent that forked, and close our ends of its pipes."""
    if pid == os.getpid():
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, errors):
        if pipe is not None:
            pipe.close()
