"""Getting files onto the disk before they are relied on, and SQLite's write-ahead log.

A file is given its name only when its content is on disk, and the name is on disk when the functions here return: a
name never stands for less than it says, and a row that is committed afterwards tells of nothing that a power cut takes
away.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ratchet.kernel import Conflict, LedgerCorrupt
from ratchet.locks import try_lock

_PAUSE_SECONDS = 0.01


def turn_on_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """SQLite does not wait by itself when another process is just turning it on; this waits for so long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


MakeDirectory = Callable[[Path], object]
# More than these are put on disk by one call for the whole file system.
_MANY = 100
_libc = ctypes.CDLL(None, use_errno=True)


class NewFile(NamedTuple):
    """A small file that is yet to be written: under `temporary` first, which is on the same file system."""

    name: str
    temporary: str
    content: bytes
    mode: int
    make_directory: MakeDirectory


def write_files(files: Sequence[NewFile]) -> None:
    """Write files in the place of others of their names, if there are any. Raises `OSError`; some may be there then."""
    try:
        for file in files:
            write_new(file.temporary, file.content, file.mode)
        for make_directory in dict.fromkeys(file.make_directory for file in files):
            these = [(each.temporary, each.name) for each in files if each.make_directory is make_directory]
            name_files(these, make_directory)
    except BaseException:
        for file in files:
            with contextlib.suppress(OSError):
                os.unlink(file.temporary)  # noqa: PTH108 - a Path costs more than the call
        raise


def name_files(
    names: Sequence[tuple[str, str]], make_directory: MakeDirectory, *, named: Sequence[str] = ()
) -> None:
    """Give files, all of one file system, their names, each of which appears only with its whole content behind it.

    A directory that is not there is made by `make_directory`. Files that others have `named` already, perhaps a moment
    ago, are put on disk as well.
    """
    if len(names) + len(named) > _MANY:
        sync_file_system(_directory_of((*(file for file, _ in names), *named)[0]))
    else:
        for file in (*(file for file, _ in names), *named):
            sync(file)
    changed = {directory for file, name in names for directory in _rename(file, name, make_directory)}
    for directory in changed | {_directory_of(name) for name in named}:
        sync(directory)


def write_new(name: str, content: bytes, mode: int) -> None:
    """A new file with all of its content, or none. It is not on disk yet."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def sync(path: str | Path) -> None:
    """Put a file or a directory on disk."""
    with _opened(path) as descriptor:
        os.fsync(descriptor)


def sync_file_system(directory: str | Path) -> None:
    """Put on disk whatever was written to the file system of a directory."""
    with _opened(directory) as descriptor:
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _rename(file: str, name: str, make_directory: MakeDirectory) -> tuple[str, ...]:
    """Give a file its name; the directories that this changed."""
    directory = _directory_of(name)
    try:
        os.rename(file, name)  # noqa: PTH104 - a Path costs more than the call
    except FileNotFoundError:
        make_directory(Path(directory))
        os.rename(file, name)  # noqa: PTH104 - as above
        return (directory, _directory_of(directory))
    return (directory,)


def _directory_of(path: str) -> str:
    """Of an absolute path, and much quicker than a Path."""
    return path.rpartition("/")[0]


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


RESTORE_MARK = "half-restored"
"""A file of a home in which a restore has begun and not ended. It says with which command it is finished."""


def refuse_half_restored(home: Path) -> None:
    """Raise `LedgerCorrupt` if a restore into the home has died halfway, and `Conflict` while it is under way."""
    mark = home / RESTORE_MARK
    try:
        finish = mark.read_text()
    except OSError:
        return
    with _opened(home) as lock:
        if not try_lock(lock, shared=True):
            raise Conflict(f"{home} is being restored: `{finish}`", hint="wait for it to end")
    raise LedgerCorrupt(
        f"{home} is half restored: its rows and its files may be of two different times",
        hint=f"finish it: `{finish}`; without that backup, delete {mark} and run `ratchet ledger check`",
    )
