"""Getting files onto the disk before they are relied on, at the price of one wait for many."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_WRITE_AND_WAIT = 7
_libc = ctypes.CDLL(None, use_errno=True)
_write_out = getattr(_libc, "sync_file_range", None)
if _write_out is not None:
    _write_out.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


def settle(files: Sequence[str]) -> None:
    """Put files on disk. The content of each is written out, and one fsync commits the journal for all of them.

    This is what git does with `core.fsyncMethod=batch`. On a file system without a journal only the last is certain.
    """
    for number, file in enumerate(files, 1):
        with _opened(file) as descriptor:
            if _write_out is None or number == len(files):
                os.fsync(descriptor)
            else:
                _checked(_write_out(descriptor, 0, 0, _WRITE_AND_WAIT))


def settle_everything(directory: Path) -> None:
    """Put on disk whatever was written to the file system of a directory."""
    with _opened(directory) as descriptor:
        _checked(_libc.syncfs(descriptor))


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
