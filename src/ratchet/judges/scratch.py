"""Directories that a judge owns while it works."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_PREFIX = "ratchet-judge-"
# One that is younger may be about to be locked.
_NEW_SECONDS = 60.0


@asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """A fresh, empty directory that only this process's user can enter; gone afterwards with all that is in it.

    It is locked while it is in use. Those that nobody holds any more were left by processes that were killed: the first
    use in a process removes them.
    """
    await in_thread(_sweep)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_home()))
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # where there are no locks, nobody sweeps either
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory
    finally:
        await in_thread(lambda: _remove(directory))
        os.close(lock)


async def copied(source: Path, target: Path) -> Path:
    """A copy of `source` at `target`. Links stay links."""
    await in_thread(lambda: shutil.copytree(source, target, symlinks=True))
    return target


async def in_thread(work: Callable[[], T], *, unless: bool = False) -> T:
    """Do `work` without holding up others. A cancellation waits for it: nothing is left half-way in the background.

    `unless` it is known to be done sooner than a thread takes it up: then it is done at once.
    """
    if unless:
        return work()
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _home() -> Path:
    return Path(tempfile.gettempdir()).resolve()


@cache
def _sweep() -> None:
    for directory in _home().glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or another process was quicker
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_mtime < time.time() - _NEW_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(directory)
            finally:
                os.close(lock)


def _remove(directory: Path) -> None:
    """Remove a tree that somebody else has made: as deep as they liked, and locked where they could.

    Whatever lies deeper is moved up first. Going down instead would need a stack as deep as the tree.
    """
    numbers = itertools.count()
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while entries := _entries(top):
            for name, is_directory in entries:
                if is_directory:
                    _empty(top, name, numbers)
                    os.rmdir(name, dir_fd=top)
                else:
                    os.unlink(name, dir_fd=top)
    finally:
        os.close(top)
    directory.rmdir()


def _empty(top: int, name: str, numbers: Iterator[int]) -> None:
    os.chmod(name, stat.S_IRWXU, dir_fd=top)
    place = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for inner, is_directory in _entries(place):
            if is_directory:
                os.chmod(inner, stat.S_IRWXU, dir_fd=place)
                os.rename(inner, f"moved-{next(numbers)}", src_dir_fd=place, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=place)
    finally:
        os.close(place)


def _entries(place: int) -> list[tuple[str, bool]]:
    with os.scandir(place) as found:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
