"""A git process that speaks with a remote: bounded in time and output, and never left behind.

It is in a process group of its own, which is ended as a whole when its time is over or the caller stops it. A watcher
leads it, whose input is a pipe from here that nothing is written to: when this process closes it or is killed, the
watcher ends the group. The helpers of git wait for a network and would not notice that by themselves. They are asked to
end before they are killed: a git that is killed leaves the lock of the ref that it was about to move, and if the remote
is a directory of this machine, nobody could push there any more.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ratchet.kernel import Missing
from ratchet.projects.errors import RemoteFailed

_OUTPUT = 32 * 1024 * 1024
# Only the end of what it complains about is of interest, however much a server has to say.
_COMPLAINT = 64 * 1024
_CHUNK = 64 * 1024
_LOOK_SECONDS = 0.25
_GRACE_SECONDS = 5.0
# Every process of the group holds the end of a pipe: when that is closed, the last of them has ended.
_WATCHER = f"""
import os, select, signal, sys
alive, held = os.pipe()
child = os.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.set_inheritable(held, True)
    os.execv(sys.argv[1], sys.argv[1:])
os.close(held)
ended = os.pidfd_open(child)
if ended not in select.select([0, ended], [], [])[0]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    select.select([alive], [], [], {_GRACE_SECONDS})
    os.killpg(0, signal.SIGKILL)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
"""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    output: bytes
    complaint: str


class GitProcesses:
    """Runs them, from any thread, until `stop`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Kill what runs, and run nothing more."""
        self._stopped.set()

    def pause(self, seconds: float) -> None:
        """Wait before another try. Raises `RemoteFailed` when it is stopped meanwhile."""
        if self._stopped.wait(seconds):
            raise RemoteFailed("git was stopped", hint="start the work again")

    def run(self, argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> Ended:
        """Run to the end. Raises `RemoteFailed` when it was stopped, takes too long or says too much."""
        what = f"git {argv[1]}"
        watched = [sys.executable, "-I", "-S", "-c", _WATCHER, *argv]
        try:
            process = subprocess.Popen(
                watched,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise Missing(f"{what} cannot be started in {cwd}: {error.strerror}") from error
        try:
            output, complaint = self._read(process, what)
            code = process.wait(timeout=_LOOK_SECONDS * 40)
        except subprocess.TimeoutExpired:
            raise RemoteFailed(f"{what} closed its output and did not end") from None
        finally:
            _end(process)
        return Ended(code, output, complaint.decode(errors="replace"))

    def _read(self, process: subprocess.Popen[bytes], what: str) -> tuple[bytes, bytes]:
        assert process.stdout is not None
        assert process.stderr is not None
        output, complaint = bytearray(), bytearray()
        deadline = time.monotonic() + self._seconds
        with selectors.DefaultSelector() as both:
            both.register(process.stdout, selectors.EVENT_READ, output)
            both.register(process.stderr, selectors.EVENT_READ, complaint)
            while both.get_map():
                if self._stopped.is_set():
                    raise RemoteFailed(f"{what} was stopped", hint="start the work again")
                if time.monotonic() > deadline:
                    raise RemoteFailed(
                        f"{what} did not end within {self._seconds:g} s",
                        hint="see whether the remote answers, or raise projects.remote_seconds",
                    )
                for key, _ in both.select(_LOOK_SECONDS):
                    if not _take(key.fileobj, key.data):  # type: ignore[arg-type]
                        both.unregister(key.fileobj)
                del complaint[:-_COMPLAINT]
                if len(output) > _OUTPUT:
                    raise RemoteFailed(f"{what} was told more than {_OUTPUT // 1024**2} MiB by the remote")
        return bytes(output), bytes(complaint)


def _take(source: IO[bytes], into: bytearray) -> bool:
    """Add what there is to read; whether more may come."""
    read = os.read(source.fileno(), _CHUNK)
    into += read
    return bool(read)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the group: helpers outlive a git that was killed."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2 * _GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
