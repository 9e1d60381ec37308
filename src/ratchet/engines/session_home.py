"""A directory of its own for one session of an agent program.

It is locked while the session lives. A process that is killed leaves its directory behind without a lock, and the next
session of any process removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault


@contextlib.asynccontextmanager
async def session_home(home: Path) -> AsyncIterator[Path]:
    """An empty directory below Ratchet's `home` that only its owner can enter; it goes soon after the block.

    Raises `Fault` if none can be made.
    """
    directory, lock = await asyncio.to_thread(_make, home / "sessions" / "live")
    try:
        yield directory
    finally:
        # Nobody waits for it: agents leave many files, and the lock is held until they are gone.
        asyncio.get_running_loop().run_in_executor(None, _remove, directory, lock)


def _make(root: Path) -> tuple[Path, int]:
    root = root.absolute()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _held(root):
            _sweep(root)
            directory = Path(tempfile.mkdtemp(dir=root))
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise Fault(
            Failure.MISSING,
            f"no directory for a session can be made in {root}: {error.strerror}",
            hint="make the directory writable or free some space, then try again",
        ) from error
    return directory, lock


@contextlib.contextmanager
def _held(root: Path) -> Iterator[None]:
    """While held, no directory below is without its lock unless its owner is dead."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(root: Path) -> None:
    for leftover in root.iterdir():
        with contextlib.suppress(OSError):
            lock = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                _remove(leftover, lock)


def _remove(directory: Path, lock: int) -> None:
    # What cannot be removed now is swept later; it must not turn a session that ended well into a failure.
    shutil.rmtree(directory, onerror=_open_up)
    os.close(lock)


def _open_up(function: Callable[..., Any], path: str, _error: Any) -> None:
    """Try once more in a directory whose rights a command of the session has taken away."""
    with contextlib.suppress(OSError):
        for directory in (Path(path).parent, Path(path)):
            if directory.is_dir() and not directory.is_symlink():
                directory.chmod(0o700)
        if function in (os.unlink, os.rmdir):
            function(path)
        else:
            shutil.rmtree(path, ignore_errors=True)
