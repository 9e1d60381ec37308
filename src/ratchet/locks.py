"""Locks of files and directories between processes. The kernel drops those of a process that ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def locked_directory(directory: Path) -> Iterator[int]:
    """Have the lock of a directory for the block, once no other process has it. Gives its descriptor."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        take_lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def take_lock(opened: int | IO[str] | IO[bytes], *, shared: bool = False) -> None:
    """Wait for the lock of what is open. It ends when what is open is closed."""
    fcntl.flock(opened, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(opened: int | IO[str] | IO[bytes], *, shared: bool = False) -> bool:
    """Take it as `take_lock` does, unless another process has it. Whether it was taken."""
    try:
        fcntl.flock(opened, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_of(file: Path, *, make: bool = False, shared: bool = False) -> int | None:
    """The descriptor of a file with its lock, if the file still has this name; `None` when it is gone or in use."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o644)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with contextlib.suppress(OSError):
        if try_lock(descriptor, shared=shared) and file.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None
