"""Writing the files of a commit into a directory, and never anywhere else.

Every name is opened relative to the directory that was opened before it, no link is followed, and a file is always a
new one. So neither a hostile tree nor a process that moves things about meanwhile can lead a write outside.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ratchet.workspaces.bounds import Bounds
from ratchet.workspaces.errors import TooLarge, UnsafePath
from ratchet.workspaces.objects import Objects
from ratchet.workspaces.removal import remove_at
from ratchet.workspaces.trees import DIRECTORY, LINK, PROGRAM, SUBMODULE, Change, Entry, Tree

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Stamp = tuple[int, int, int, int]


@dataclass(slots=True)
class Written:
    """What was written to each file and how it looked then: one that still looks so has not changed.

    The kernel's clock for files ticks slowly, so a file with the newest time may have changed within that tick.
    """

    files: dict[str, tuple[Stamp, Entry]] = field(default_factory=dict)
    newest: int = 0

    def add(self, path: str, found: os.stat_result, entry: Entry) -> None:
        self.files[path] = (stamp(found), entry)
        self.newest = max(self.newest, found.st_ctime_ns)

    def entry(self, path: str, found: os.stat_result) -> Entry | None:
        """What a file holds, when its looks are enough to tell."""
        written = self.files.get(path)
        if written is None or found.st_ctime_ns >= self.newest or written[0] != stamp(found):
            return None
        return written[1]


def stamp(found: os.stat_result) -> Stamp:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Filler:
    """Writes into one directory, given as an open descriptor."""

    def __init__(self, objects: Objects, bounds: Bounds, written: Written) -> None:
        self._objects = objects
        self._bounds = bounds
        self._written = written
        self._bytes = 0

    def fill(self, descriptor: int, tree: str, prefix: str = "") -> None:
        """Write a whole tree into an empty directory."""
        entries = self._objects.tree(tree)
        self._files(descriptor, entries, prefix)
        for name, entry in entries.items():
            if entry.mode in (DIRECTORY, SUBMODULE):
                os.mkdir(name, dir_fd=descriptor)
            if entry.mode == DIRECTORY:
                with opened(name, descriptor) as below:
                    self.fill(below, entry.hash, f"{prefix}{name}/")

    def change(self, descriptor: int, changes: Iterable[Change]) -> None:
        """Bring a directory from one tree to another. Raises `UnsafePath` when a directory on the way is none."""
        wanted = list(changes)
        for change in wanted:
            if change.before is not None:
                self._remove(descriptor, change.path)
        for change in wanted:
            if change.after is not None:
                self._place(descriptor, change.path, change.after)

    def _files(self, descriptor: int, entries: Tree, prefix: str) -> None:
        files = [(name, entry) for name, entry in entries.items() if entry.mode not in (DIRECTORY, SUBMODULE)]
        contents = self._objects.read_many(
            [entry.hash for _, entry in files], "blob", limit=self._bounds.file_bytes
        )
        for (name, entry), content in zip(files, contents, strict=True):
            self._bytes += len(content)
            if self._bytes > self._bounds.total_bytes:
                raise TooLarge(
                    prefix + name, "makes the tree too large", "total_bytes", self._bounds.total_bytes
                )
            if entry.mode == LINK:
                os.symlink(content, os.fsencode(name), dir_fd=descriptor)
                continue
            file = os.open(name, _NEW_FILE, 0o777 if entry.mode == PROGRAM else 0o666, dir_fd=descriptor)
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(file, rest) :]
                self._written.add(prefix + name, os.fstat(file), entry)
            finally:
                os.close(file)

    def _place(self, descriptor: int, path: str, entry: Entry) -> None:
        with parent_of(descriptor, path, make=True) as (parent, name):
            if entry.mode == SUBMODULE:
                os.mkdir(name, dir_fd=parent)
            else:
                remove_at(name, parent)
                self._files(parent, {name: entry}, path.removesuffix(name))

    def _remove(self, descriptor: int, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), parent_of(descriptor, path) as (parent, name):
            remove_at(name, parent)
        # A directory that holds nothing any more is no part of a tree.
        while "/" in path:
            path = path.rpartition("/")[0]
            try:
                with parent_of(descriptor, path) as (parent, name):
                    os.rmdir(name, dir_fd=parent)
            except OSError:
                return


@contextlib.contextmanager
def opened(name: str, parent: int) -> Iterator[int]:
    """A directory below an open one, itself and not what a link may lead to."""
    descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def parent_of(root: int, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The directory that holds `path`, opened step by step, and the last name."""
    *above, name = path.split("/")
    descriptor = os.dup(root)
    try:
        for part in above:
            try:
                following = os.open(part, OPEN_DIRECTORY, dir_fd=descriptor)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(part, dir_fd=descriptor)
                following = os.open(part, OPEN_DIRECTORY, dir_fd=descriptor)
            except OSError as error:
                raise UnsafePath(path, f"lies behind {part!r}, which is no directory") from error
            os.close(descriptor)
            descriptor = following
        yield descriptor, name
    finally:
        os.close(descriptor)
