"""Outlives its parent by a moment to end the parent's PostgreSQL and remove its files.

Run as `python postgres_watchdog.py PARENT_PID DIRECTORY`. It watches the parent's pid rather than a pipe,
because processes that the tests fork would hold a pipe open.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.2
GRACE_SECONDS = 5.0


def watch(parent: int, directory: Path) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    end_server(directory / "data" / "postmaster.pid")
    shutil.rmtree(directory, ignore_errors=True)


def end_server(pid_file: Path) -> None:
    """Ask for an immediate shutdown, at which the server removes its pid file; kill it if it does not."""
    try:
        pid = int(pid_file.read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + GRACE_SECONDS
        while pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        if pid_file.exists():
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]))
