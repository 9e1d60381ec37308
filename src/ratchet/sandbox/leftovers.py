"""Removing what foreign code has left: however deep, without rights, full of links, or still being written."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVAL_TRIES = 5
_DEEP = 64
# Each pass takes that many levels off; what needs more than these is being made faster than it is removed.
_PASSES = 1000
_number = itertools.count()


def discard(path: Path) -> None:
    """Remove whatever is at `path` as far as that is possible, however deep. The directory that it lies in must be
    Ratchet's own."""
    with contextlib.suppress(OSError):
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_at(path.name, parent)
        finally:
            os.close(parent)


def remove_at(name: str, parent: int) -> None:
    """Remove whatever has this name in an open directory; absent is fine."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            _unlink(name, parent)
            return
    except FileNotFoundError:
        return
    tries, moved = _REMOVAL_TRIES, False
    while True:
        try:
            with _let_in(name, parent) as descriptor:
                moved = clear(descriptor)
            os.rmdir(name, dir_fd=parent)
            return
        except FileNotFoundError:
            return
        except PermissionError:
            os.fchmod(parent, 0o700)
            tries -= 1
            if not tries:
                raise
        except OSError:  # what was moved up is next, or a process that still lives has written into it
            tries -= not moved
            if not tries:
                raise


def empty(descriptor: int, *, but: str | None = None) -> None:
    """Remove all that an open directory holds, however deep, `but` one name. Raises `OSError` when something stays."""
    for _ in range(_PASSES):
        if not clear(descriptor, but=but):
            return
    raise OSError(errno.ENOTEMPTY, "something keeps making directories in it")


def clear(descriptor: int, *, but: str | None = None, _top: int | None = None, _depth: int = 0) -> bool:
    """Remove all that an open directory holds, `but` one name. True when deep directories were only moved up."""
    top, moved = descriptor if _top is None else _top, False
    with os.scandir(descriptor) as found:
        directories = {each.name: each.is_dir(follow_symlinks=False) for each in found}
    for name, is_directory in directories.items():
        if name == but:
            continue
        if not is_directory:
            _unlink(name, descriptor)
        elif _depth >= _DEEP:
            with contextlib.suppress(FileNotFoundError):
                os.rename(name, f"deep-{next(_number)}", src_dir_fd=descriptor, dst_dir_fd=top)
                moved = True
        else:
            # Another process may be removing it, too.
            with contextlib.suppress(FileNotFoundError), _let_in(name, descriptor) as below:
                moved |= clear(below, _top=top, _depth=_depth + 1)
            with contextlib.suppress(OSError):  # the caller sees that it is still there
                os.rmdir(name, dir_fd=descriptor)
    return moved


def _unlink(name: str, parent: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=parent)
        except PermissionError:
            os.fchmod(parent, 0o700)
            os.unlink(name, dir_fd=parent)


@contextlib.contextmanager
def _let_in(name: str, parent: int) -> Iterator[int]:
    try:
        descriptor = os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent)
    except PermissionError:
        # By way of a descriptor, since a change of mode by name would follow a link put there meanwhile.
        handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - no file of this name is meant
        finally:
            os.close(handle)
        descriptor = os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
