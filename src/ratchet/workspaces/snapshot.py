"""The whole tree of a directory as it is found: new, changed and deleted files, modes and links.

The directory is foreign: nothing in it is followed, and what must not be in a commit is refused by its path. A process
that still writes can at worst choose what is read inside the directory.
"""

from __future__ import annotations

import os
import stat

from ratchet.workspaces.bounds import Bounds
from ratchet.workspaces.errors import TooLarge, UnsafePath
from ratchet.workspaces.fill import OPEN_DIRECTORY, Written
from ratchet.workspaces.ignore import Ignore
from ratchet.workspaces.loose import Batch
from ratchet.workspaces.names import plain_name, unwanted_name
from ratchet.workspaces.trees import DIRECTORY, FILE, LINK, PROGRAM, SUBMODULE, Entry, Tree, subtree

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


class Snapshot:
    """Takes one snapshot of one directory into a batch."""

    def __init__(
        self, batch: Batch, bounds: Bounds, written: Written, ignore: Ignore, *, skip: str | None = None
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
    ) -> dict[str, Entry]:
        old = self._batch.read_tree(base) if base else {}
        with os.scandir(descriptor) as listing:
            found = {each.name: each for each in listing if prefix or each.name != self._skip}
        under: Tree = {}
        entries: dict[str, Entry] = {}
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
            self._count(path)
            was = old.get(name)
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
        was: Entry | None,
        under: Entry | None,
        path: str,
        *,
        rules: bool,
    ) -> Entry | None:
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
        self, parent: int, name: str, was: Entry | None, under: Entry | None, path: str, *, rules: bool
    ) -> Entry | None:
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
        return Entry(DIRECTORY, self._batch.tree(entries)) if entries else None

    def _link(self, parent: int, name: str, was: Entry | None, path: str) -> Entry:
        if plain_name(name) in (".gitmodules", "gitmod~1"):
            raise UnsafePath(path, "must be a file and not a link")
        target = os.readlink(os.fsencode(name), dir_fd=parent)
        return Entry(LINK, self._batch.blob(target, was.hash if was else None))

    def _file(self, parent: int, name: str, was: Entry | None, path: str) -> Entry:
        descriptor = _open(name, _READ, parent, path)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnsafePath(path, "is a device, a pipe or a socket")
            content = self._content(descriptor, status.st_size, path)
        finally:
            os.close(descriptor)
        return Entry(_mode(status), self._batch.blob(content, was.hash if was else None))

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
