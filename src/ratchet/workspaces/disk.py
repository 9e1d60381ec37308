"""Getting files onto the disk before they are relied on, at the price of one wait for many."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_WRITE_AND_WAIT = 7
_libc = ctypes.CDLL(None, use_errno=True)
_write_out = getattr(_libc, "sync_file_range", None)
if _write_out is not None:
    _write_out.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


def settle(descriptors: Sequence[int]) -> None:
    """Put open files on disk. The content of each is written out, and one fsync commits the journal for all of them.

    This is what git does with `core.fsyncMethod=batch`. On a file system without a journal only the last is certain.
    """
    for descriptor in descriptors[:-1]:
        if _write_out is None:
            os.fsync(descriptor)
        else:
            _checked(_write_out(descriptor, 0, 0, _WRITE_AND_WAIT))
    for descriptor in descriptors[-1:]:
        os.fsync(descriptor)


def settle_everything(directory: Path) -> None:
    """Put on disk whatever was written to the file system of a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.syncfs(descriptor))
    finally:
        os.close(descriptor)


def _checked(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
