"""Getting files onto the disk before they are relied on.

A file is given its name only when its content is certain to be there after a power cut, so a name never stands for
less than it says. What rows of a transaction tell of is certain once the transaction is, at the price of one wait for
all of it: see `ratchet.ledger.journal`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MakeDirectory = Callable[[Path], object]
# More than these are put on disk by one call for the whole file system.
_MANY = 100
_libc = ctypes.CDLL(None, use_errno=True)


class File(NamedTuple):
    """A small file that is yet to be written: under `temporary` first, which is on the same file system.

    Most names stand for one content for ever. Those that do not, `changes`, must keep their length.
    """

    name: str
    temporary: str
    content: bytes
    mode: int
    make_directory: MakeDirectory
    changes: bool = False

    def write(self) -> None:
        """Give it its name and all of its content at once, without waiting for the disk."""
        with self._begun():
            rename(self.temporary, self.name, self.make_directory)

    def write_and_wait(self) -> None:
        """As `write`. It is certain when this returns."""
        with self._begun():
            name_files([(self.temporary, self.name)], self.make_directory)

    @contextlib.contextmanager
    def _begun(self) -> Iterator[None]:
        """Write all of it under its temporary name, which is gone if it gets no other."""
        try:
            write_new(self.temporary, self.content, self.mode)
        except FileNotFoundError:
            self.make_directory(Path(directory_of(self.temporary)))
            write_new(self.temporary, self.content, self.mode)
        try:
            yield
        except BaseException:
            Path(self.temporary).unlink(missing_ok=True)
            raise


class Unsettled:
    """Files that rows are about to tell of. They are written when they are settled; nobody else sees them before."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: File) -> None:
        self._files[file.name] = file

    def join(self, others: Unsettled) -> None:
        """Settle others with these."""
        self._files |= others._files

    def take(self) -> list[File]:
        """All of them, in the order in which they came; none are left."""
        files, self._files = list(self._files.values()), {}
        return files


def name_files(names: Sequence[tuple[str, str]], make_directory: MakeDirectory) -> None:
    """Give files, all of one file system, their names, each of which appears only with its whole content behind it.

    They are certain when it returns. A directory that is not there is made by `make_directory`.
    """
    if not names:
        return
    if len(names) > _MANY:
        settle_everything(directory_of(names[0][0]))
    else:
        for file, _ in names:
            put_on_disk(file)
    changed = {directory for file, name in names for directory in rename(file, name, make_directory)}
    for directory in changed:
        put_on_disk(directory)


def write_new(name: str, content: bytes, mode: int) -> None:
    """A new file with all of its content, or none."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        if os.write(descriptor, content) != len(content):
            os.lseek(descriptor, 0, os.SEEK_SET)
            write_all(descriptor, content)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def rename(file: str, name: str, make_directory: MakeDirectory) -> tuple[str, ...]:
    """Give a file its name; the directories that this changed."""
    directory = directory_of(name)
    try:
        os.rename(file, name)  # noqa: PTH104 - a Path costs more than the call
    except FileNotFoundError:
        make_directory(Path(directory))
        os.rename(file, name)  # noqa: PTH104 - as above
        return (directory, directory_of(directory))
    return (directory,)


def put_on_disk(file: str | Path) -> None:
    with _opened(file) as descriptor:
        os.fsync(descriptor)


def settle_everything(directory: str | Path) -> None:
    """Put on disk whatever was written to the file system of a directory."""
    with _opened(directory) as descriptor:
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def directory_of(path: str) -> str:
    """Of an absolute path, and much quicker than a Path."""
    return path.rpartition("/")[0]


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
