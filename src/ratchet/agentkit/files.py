"""Files that are read and replaced as a whole, in a directory that somebody else may write too."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from ratchet.agentkit.errors import StateDamaged

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_WHAT_TO_DO = "move it away"


def opened(path: Path, flags: int) -> int:
    """A descriptor of the file at `path`. Raises `StateDamaged` if a link or anything but a file lies there."""
    try:
        # A pipe that lies there must not keep us waiting for its other end.
        descriptor = os.open(path, flags | _NO_LINK | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise StateDamaged(f"{path} is no plain file", hint=_WHAT_TO_DO) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StateDamaged(f"{path} is no plain file", hint=_WHAT_TO_DO)
    return descriptor


def read_whole(path: Path, most: int) -> bytes | None:
    """What the file holds; `None` if there is none. Raises `StateDamaged` if that is more than `most` bytes."""
    try:
        descriptor = opened(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise StateDamaged(f"{path} is larger than {most:,} bytes", hint=_WHAT_TO_DO)
    return content


def replace_whole(path: Path, content: bytes) -> None:
    """Make `content` the file's content: for every reader, and after every crash, it is the old one or the new one.

    One caller at a time. When it returns, the content is on the disk.
    """
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    try:
        descriptor = opened(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
