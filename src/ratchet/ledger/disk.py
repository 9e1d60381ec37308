"""Getting files onto the disk before they are relied on, at the price of one wait for many.

A new file is certain to be there after a power cut once its content is written out and the journal of its file system
has what was done to directories. One wait for the journal serves for all that was done before it, so files that are
relied on together wait together.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

MakeDirectory = Callable[[Path], object]
_WRITE, _WRITE_AND_WAIT = 2, 7
# More than these are put on disk by one call for the whole file system.
_MANY = 100
_order = itertools.count()
# Others keep a journal for each file, or none, or nobody knows.
_EXT4, _XFS = 0xEF53, 0x58465342
_libc = ctypes.CDLL(None, use_errno=True)
_write_out = getattr(_libc, "sync_file_range", None)
if _write_out is not None:
    _write_out.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


class Unsettled:
    """Files that have their content and their names, and are certain to keep both once they are settled."""

    def __init__(self) -> None:
        self._newest: dict[int, tuple[int, str]] = {}

    def add(self, file: str) -> None:
        """One that was given its name just now."""
        device = os.stat(file).st_dev  # noqa: PTH116 - a Path costs more than the call
        self._newest[device] = (next(_order), file)

    def join(self, others: Unsettled) -> None:
        """Settle others with these."""
        for device, found in others._newest.items():
            self._newest[device] = max(found, self._newest.get(device, found))

    def settle(self) -> None:
        """Wait for the journals. The newest file stands for all of its file system, since a new name changes a file."""
        for _, file in self._newest.values():
            put_on_disk(file)
        self._newest.clear()


def name_files(
    names: Sequence[tuple[str, str]], make_directory: MakeDirectory, unsettled: Unsettled | None = None
) -> None:
    """Give files, all of one file system, their names, each of which appears only with its whole content behind it.

    They are certain when it returns, or where they are added to what is `unsettled`, when that is settled. A directory
    that is not there is made by `make_directory`.
    """
    if not names:
        return
    together = have_one_journal(_above(names[0][0]))
    if len(names) > _MANY:
        settle_everything(Path(_above(names[0][0])))
    else:
        _write_contents([file for file, _ in names], together=together)
    changed = {directory for file, name in names for directory in _rename(file, name, make_directory)}
    if not together:
        for directory in changed:
            put_on_disk(directory)
    elif unsettled is not None:
        unsettled.add(names[-1][1])
    else:
        put_on_disk(names[-1][1])


def _write_contents(files: Sequence[str], *, together: bool) -> None:
    with contextlib.ExitStack() as opened:
        descriptors = [opened.enter_context(_opened(file)) for file in files]
        if together and _write_out is not None:
            # All of it is on its way before any of it is waited for.
            for descriptor in descriptors:
                _checked(_write_out(descriptor, 0, 0, _WRITE))
            for descriptor in descriptors:
                _checked(_write_out(descriptor, 0, 0, _WRITE_AND_WAIT))
        else:
            for descriptor in descriptors:
                os.fsync(descriptor)


def put_on_disk(file: str | Path) -> None:
    with _opened(file) as descriptor:
        os.fsync(descriptor)


def settle_everything(directory: Path) -> None:
    """Put on disk whatever was written to the file system of a directory."""
    with _opened(directory) as descriptor:
        _checked(_libc.syncfs(descriptor))


def have_one_journal(directory: str) -> bool:
    """Whether one wait serves for every file of the file system that a directory lies in."""
    return _has_one_journal(os.stat(directory).st_dev, directory)  # noqa: PTH116 - as above


@lru_cache(maxsize=64)
def _has_one_journal(device: int, directory: str) -> bool:
    told = ctypes.create_string_buffer(256)
    if getattr(_libc, "statfs", None) is None or _libc.statfs(os.fsencode(directory), told) != 0:
        return False
    kind = ctypes.c_long.from_buffer(told).value
    return kind == _XFS or (kind == _EXT4 and _has_ext4_journal(device))


def _has_ext4_journal(device: int) -> bool:
    """ext4 can be made without one."""
    try:
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").readlink().name
        return any(each.name.startswith(f"{name}-") for each in Path("/proc/fs/jbd2").iterdir())
    except OSError:
        return False


def _rename(file: str, name: str, make_directory: MakeDirectory) -> tuple[str, ...]:
    """The directories that it changed."""
    directory = _above(name)
    try:
        os.rename(file, name)  # noqa: PTH104 - as above
    except FileNotFoundError:
        make_directory(Path(directory))
        os.rename(file, name)  # noqa: PTH104 - as above
        return (directory, _above(directory))
    return (directory,)


def _above(path: str) -> str:
    return os.path.dirname(path)  # noqa: PTH120 - as above


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _checked(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
