"""The plain files of a folder, in order and within bounds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ratchet.kernel import Misuse
from ratchet.workspaces.names import unwanted_name

# What tools leave behind, and Ratchet's own home when somebody works inside the folder.
SKIPPED = frozenset({".git", ".ratchet", "__pycache__"})
_DEEPEST = 50
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Room:
    """How much a folder may hold."""

    files: int = 100_000
    file_bytes: int = 4 * 1024**3
    total_bytes: int = 16 * 1024**3


@dataclass(frozen=True, slots=True)
class PlainFile:
    """`place` is its path below the folder, with slashes."""

    path: Path
    place: str
    size: int
    executable: bool


def plain_files(folder: Path, room: Room) -> list[PlainFile]:
    """All files below `folder`, sorted. Raises `Misuse` for a link, a pipe, a name no tree can have, or too much."""
    try:
        return _within(room, folder, _walk(folder, ()))
    except OSError as error:
        raise Misuse(f"{error.filename or folder} cannot be read: {error.strerror}") from error


def read_plain(path: Path, most_bytes: int) -> bytes:
    """The content of a file. Raises `Misuse` when it is none, is a link, or is too large."""
    try:
        with open_plain(path) as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > most_bytes:
        raise Misuse(f"{path} is larger than {most_bytes:,} bytes")
    return content


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file to read it. Raises `OSError` for a link, and `Misuse` for what is no file."""
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Misuse(f"{path} is not a plain file")
    return os.fdopen(descriptor, "rb")


def _within(room: Room, folder: Path, files: Iterator[PlainFile]) -> list[PlainFile]:
    found: list[PlainFile] = []
    total = 0
    for each in files:
        found.append(each)
        total += each.size
        if len(found) > room.files:
            raise Misuse(f"{folder} holds more than {room.files:,} files", hint="keep data elsewhere")
        if each.size > room.file_bytes or total > room.total_bytes:
            raise Misuse(
                f"{each.path} is too much: a file may have {room.file_bytes:,} bytes, all together"
                f" {room.total_bytes:,}",
                hint="keep large data elsewhere",
            )
    return found


def _walk(folder: Path, parts: tuple[str, ...]) -> Iterator[PlainFile]:
    if len(parts) > _DEEPEST:
        raise Misuse(f"{folder} is nested more than {_DEEPEST} directories deep")
    for path in sorted(folder.iterdir()):
        if path.name in SKIPPED:
            continue
        reason = unwanted_name(path.name)
        if reason is not None:
            raise Misuse(f"{str(path)!r} {reason}", hint="rename it")
        entry = path.lstat()
        here = (*parts, path.name)
        if stat.S_ISDIR(entry.st_mode):
            yield from _walk(path, here)
        elif stat.S_ISREG(entry.st_mode):
            yield PlainFile(path, "/".join(here), entry.st_size, bool(entry.st_mode & stat.S_IXUSR))
        else:
            kind = "a symbolic link" if stat.S_ISLNK(entry.st_mode) else "neither a file nor a directory"
            raise Misuse(f"{path} is {kind}", hint="put a plain file in its place")
