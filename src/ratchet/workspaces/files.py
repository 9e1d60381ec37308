"""The files of a commit written into a directory, and the whole tree of a directory as it is found.

The directory is foreign: nothing in it is followed, and what must not be in a commit is refused by its path. A process
that still writes can at worst choose what is read inside the directory.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.files import remove_at
from ratchet.workspaces.errors import TooLarge, UnsafePath
from ratchet.workspaces.git import Conversation, Git
from ratchet.workspaces.objects import ObjectBatch, Objects
from ratchet.workspaces.trees import (
    DIRECTORY,
    FILE,
    LINK,
    PROGRAM,
    SUBMODULE,
    Tree,
    TreeBounds,
    TreeChange,
    TreeEntry,
    is_litter,
    plain_name,
    subtree,
    unwanted_name,
)

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Stamp = tuple[int, int, int, int]


@dataclass(slots=True)
class WrittenFiles:
    """What was written to each file and how it looked then: one that still looks so has not changed.

    The kernel's clock for files ticks slowly, so a file with the newest time may have changed within that tick.
    """

    files: dict[str, tuple[Stamp, TreeEntry]] = field(default_factory=dict)
    newest: int = 0

    def add(self, path: str, found: os.stat_result, entry: TreeEntry) -> None:
        self.files[path] = (stamp(found), entry)
        self.newest = max(self.newest, found.st_ctime_ns)

    def entry(self, path: str, found: os.stat_result) -> TreeEntry | None:
        """What a file holds, when its looks are enough to tell."""
        written = self.files.get(path)
        if written is None or found.st_ctime_ns >= self.newest or written[0] != stamp(found):
            return None
        return written[1]


def stamp(found: os.stat_result) -> Stamp:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Filler:
    """Writes into one directory, given as an open descriptor."""

    def __init__(self, objects: Objects, bounds: TreeBounds, written: WrittenFiles) -> None:
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

    def change(self, descriptor: int, changes: Iterable[TreeChange]) -> None:
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

    def _place(self, descriptor: int, path: str, entry: TreeEntry) -> None:
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


class Ignore:
    """Asks git about one directory. The process is started at the first question; `close` ends it."""

    def __init__(self, program: str, empty: Path, directory: Path) -> None:
        """`empty` becomes a git directory without content, so that no settings of a repository are read."""
        self._program = program
        self._empty = empty
        self._directory = directory
        self._conversation: Conversation | None = None

    def covers(self, path: str) -> bool:
        if self._conversation is None:
            words = ("check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching")
            self._conversation = Conversation(
                Git(self._program, _empty_repository(self._empty)),
                *words,
                cwd=self._directory,
                seconds=20,
                GIT_WORK_TREE=str(self._directory),
                GIT_LITERAL_PATHSPECS="0",  # this command refuses it
            )
        with self._conversation.turn():
            self._conversation.say(b"./%s\0" % path.encode())  # no name can then be read as a pattern
            _source, _line, pattern, _path = (self._conversation.until(b"\0") for _ in range(4))
        return bool(pattern) and not pattern.startswith(b"!")

    def close(self) -> None:
        if self._conversation is not None:
            self._conversation.stop()


def _empty_repository(path: Path) -> Path:
    """The least that git takes for a git directory."""
    if (path / "HEAD").exists():
        return path
    for name in ("objects", "refs"):
        (path / name).mkdir(parents=True, exist_ok=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    return path


_OPAQUE = "trusted.overlay.opaque"


def is_whiteout(each: os.DirEntry[str]) -> bool:
    """Whether an entry only says that something of this name was deleted."""
    if each.is_file(follow_symlinks=False) or each.is_dir(follow_symlinks=False) or each.is_symlink():
        return False
    status = each.stat(follow_symlinks=False)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(descriptor: int) -> bool:
    """Whether a directory hides the one below it, with all that is in that."""
    try:
        return os.getxattr(descriptor, _OPAQUE) == b"y"
    except OSError:
        return False


_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1024 * 1024
_RULES = ".gitignore"


class DirectorySnapshot:
    """Takes one snapshot of one directory into a batch."""

    def __init__(
        self,
        batch: ObjectBatch,
        bounds: TreeBounds,
        written: WrittenFiles,
        ignore: Ignore,
        *,
        skip: str | None = None,
    ) -> None:
        """`skip` is a name at the top that is not looked at."""
        self._batch = batch
        self._bounds = bounds
        self._written = written
        self._ignore = ignore
        self._skip = skip
        self._overlay = False
        self._files = 0
        self._bytes = 0

    def take(self, descriptor: int, base: str, lower: str | None = None) -> str:
        """The hash of the tree. Raises `UnsafePath` or `TooLarge`; nothing is in the repository then.

        With `lower` the directory is the upper layer of an overlay, and what is not in it is as in that tree.
        """
        self._overlay = lower is not None
        entries = self._directory(descriptor, base, lower, "", rules=False)
        return base if entries == self._batch.read_tree(base) else self._batch.tree(entries)

    def _directory(
        self, descriptor: int, base: str | None, lower: str | None, prefix: str, *, rules: bool
    ) -> dict[str, TreeEntry]:
        old = self._batch.read_tree(base) if base else {}
        with os.scandir(descriptor) as listing:
            found = {each.name: each for each in listing if prefix or each.name != self._skip}
        under: Tree = {}
        entries: dict[str, TreeEntry] = {}
        if lower is not None and not is_opaque(descriptor):
            under = self._batch.read_tree(lower)
            entries = {name: under[name] for name in under if name not in found}
        if self._overlay:
            found = {name: each for name, each in found.items() if not is_whiteout(each)}
        if _RULES in found and not found[_RULES].is_file(follow_symlinks=False):
            raise UnsafePath(prefix + _RULES, "is not a regular file")
        rules = rules or _RULES in found or _RULES in entries
        for name, each in found.items():
            path = prefix + name
            was = old.get(name)
            if self._bounds.without_litter and is_litter(name):
                if was is not None:
                    entries[name] = was
                continue
            self._count(path)
            if was is None:
                reason = unwanted_name(name)
                if reason is not None:
                    raise UnsafePath(path, reason)
                if rules and self._ignore.covers(path):
                    continue
            try:
                entry = self._entry(descriptor, each, was, under.get(name), path, rules=rules)
            except FileNotFoundError:  # gone since it was listed
                continue
            if entry is not None:
                entries[name] = entry
        return entries

    def _entry(
        self,
        parent: int,
        each: os.DirEntry[str],
        was: TreeEntry | None,
        under: TreeEntry | None,
        path: str,
        *,
        rules: bool,
    ) -> TreeEntry | None:
        if each.is_symlink():
            return self._link(parent, each.name, was, path)
        if each.is_dir(follow_symlinks=False):
            return self._below(parent, each.name, was, under, path, rules=rules)
        if not each.is_file(follow_symlinks=False):
            raise UnsafePath(path, "is a device, a pipe or a socket")
        status = each.stat(follow_symlinks=False)
        written = self._written.entry(path, status)
        if written is not None and written.mode == _mode(status):
            return written
        return self._file(parent, each.name, was, path)

    def _below(
        self,
        parent: int,
        name: str,
        was: TreeEntry | None,
        under: TreeEntry | None,
        path: str,
        *,
        rules: bool,
    ) -> TreeEntry | None:
        if path.count("/") >= self._bounds.depth:
            raise TooLarge(
                path, f"is more than {self._bounds.depth} directories deep", "depth", self._bounds.depth
            )
        below = _open(name, OPEN_DIRECTORY, parent, path)
        try:
            if was is not None and was.mode == SUBMODULE:
                if os.listdir(below):  # noqa: PTH208 - a descriptor
                    raise UnsafePath(
                        path, "is a submodule, and has files in it", hint="leave submodules empty"
                    )
                return was
            base = subtree(was)
            entries = self._directory(below, base, subtree(under), path + "/", rules=rules)
        finally:
            os.close(below)
        if base is not None and entries == self._batch.read_tree(base):
            return was
        return TreeEntry(DIRECTORY, self._batch.tree(entries)) if entries else None

    def _link(self, parent: int, name: str, was: TreeEntry | None, path: str) -> TreeEntry:
        if plain_name(name) in (".gitmodules", "gitmod~1"):
            raise UnsafePath(path, "must be a file and not a link")
        target = os.readlink(os.fsencode(name), dir_fd=parent)
        return TreeEntry(LINK, self._batch.blob(target, was.hash if was else None))

    def _file(self, parent: int, name: str, was: TreeEntry | None, path: str) -> TreeEntry:
        descriptor = _open(name, _READ, parent, path)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnsafePath(path, "is a device, a pipe or a socket")
            content = self._content(descriptor, status.st_size, path)
        finally:
            os.close(descriptor)
        return TreeEntry(_mode(status), self._batch.blob(content, was.hash if was else None))

    def _content(self, descriptor: int, expected: int, path: str) -> bytes:
        # One byte more than expected: an answer that is shorter than asked for is the end of the file.
        asked = min(expected, _CHUNK) + 1
        parts = [os.read(descriptor, asked)]
        size = len(parts[0])
        while len(parts[-1]) == asked:
            parts.append(os.read(descriptor, asked))
            size += len(parts[-1])
            if size > self._bounds.file_bytes:
                break
        if size > self._bounds.file_bytes:
            raise TooLarge(path, "is too large a file", "file_bytes", self._bounds.file_bytes)
        self._bytes += size
        if self._bytes > self._bounds.total_bytes:
            raise TooLarge(path, "makes the commit too large", "total_bytes", self._bounds.total_bytes)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _count(self, path: str) -> None:
        self._files += 1
        if self._files > self._bounds.files:
            raise TooLarge(
                path, f"is one of more than {self._bounds.files} files", "files", self._bounds.files
            )


def _mode(status: os.stat_result) -> int:
    return PROGRAM if status.st_mode & stat.S_IXUSR else FILE


def _open(name: str, flags: int, parent: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnsafePath(path, f"cannot be read: {error.strerror}") from error
