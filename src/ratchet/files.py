"""Files and directories of this machine: locks of them, content that is relied on, and removal of what is left.

Locks are between processes, and the kernel drops those of a process that ends, however it ends.

A file is given its name only when its content is on disk, and the name is on disk when the functions here return: a
name never stands for less than it says, and a row that is committed afterwards names nothing that a power cut removes.

What foreign code left may be deep, without rights, full of links, or still being written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3


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


MakeDirectory = Callable[[Path], object]
# More than these are put on disk by one call for the whole file system.
_MANY = 100


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
    with opened(path) as descriptor:
        os.fsync(descriptor)


def sync_file_system(directory: str | Path) -> None:
    """Put on disk whatever was written to the file system of a directory."""
    import ctypes  # a list of tasks comes here, too, and puts nothing on disk

    with opened(directory) as descriptor:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
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
def opened(path: str | Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_PAUSE_SECONDS = 0.01


def turn_on_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """SQLite does not wait by itself when another process is just turning it on; this waits for so long."""
    import sqlite3  # by whom there is a connection has loaded it

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
