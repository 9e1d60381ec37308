"""What a power cut leaves: worked out from the record of what was written, and what was waited for.

A disk keeps what was synced. Of the rest it keeps what it happens to: all, nothing, or some of the blocks of a file and
some of the names of a directory, in any combination. A file's name and its content are synced apart.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.shim import Entry, Op

BLOCK = 512
OFF_SECONDS = 3600


@dataclass(eq=False)
class Node:
    """A file: what is surely on the disk, and what was written to it since then."""

    safe: bytes = b""
    mode: int = 0o644
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes at an offset; without content, the size that it was cut or grown to."""

    def sync(self) -> None:
        self.safe, self.pending = _applied(self.safe, self.pending), []

    def left(self, chance: random.Random) -> bytes:
        """Its content after a power cut."""
        if not self.pending or (how := chance.random()) < 0.25:
            return self.safe
        if how < 0.5:
            return _applied(self.safe, self.pending)
        if how < 0.75:
            return _applied(self.safe, self.pending[: chance.randrange(len(self.pending) + 1)])
        kept: list[tuple[int, bytes | None]] = []
        for offset, content in self.pending:
            if content is None:
                if chance.random() < 0.5:
                    kept.append((offset, None))
                continue
            kept += [
                (offset + at, content[at : at + BLOCK])
                for at in range(0, len(content), BLOCK)
                if chance.random() < 0.5
            ]
        return _applied(self.safe, kept)


def _applied(content: bytes, changes: Iterable[tuple[int, bytes | None]]) -> bytes:
    out = bytearray(content)
    for offset, written in changes:
        if written is None:
            out = out[:offset].ljust(offset, b"\0")
        else:
            if len(out) < offset:
                out = out.ljust(offset, b"\0")
            out[offset : offset + len(written)] = written
    return bytes(out)


@dataclass(frozen=True)
class Naming:
    """A change of names that is not on the disk yet, and the directories any of which puts it there when synced."""

    old: str | None
    new: str | None
    node: Node | None
    directories: frozenset[str]


class Disk:
    """The disk below a directory: begins as it is now, and follows the record from there."""

    def __init__(self, root: Path) -> None:
        self._root = str(root.resolve())
        self._safe: dict[str, Node | None] = {}
        """Names that are on the disk; a directory has no node."""
        self._pending: list[Naming] = []
        self._nodes: dict[int, Node] = {}
        self._names: dict[str, Node | None] = {}
        """Names as the processes see them."""
        for directory, _, files in os.walk(self._root):
            self._safe[directory] = None
            for name in files:
                path = f"{directory}/{name}"
                if name.endswith((".log", "-shm")) or ".workspaces" in path:
                    continue
                found = Path(path).stat()
                node = Node(Path(path).read_bytes(), found.st_mode & 0o777)
                self._safe[path] = self._nodes[found.st_ino] = node
        self._names = dict(self._safe)

    def follow(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            match entry.op:
                case Op.OPEN:
                    self._open(entry)
                case Op.WRITE:
                    if node := self._nodes.get(entry.inode):
                        node.pending.append((entry.offset, entry.data))
                case Op.TRUNCATE:
                    if node := self._nodes.get(entry.inode):
                        node.pending.append((entry.offset, None))
                case Op.SYNC:
                    if node := self._nodes.get(entry.inode):
                        node.sync()
                case Op.SYNC_DIRECTORY:
                    self._sync_directory(entry.path)
                case Op.SYNC_ALL:
                    self._sync_all()
                case Op.RENAME:
                    self._rename(entry.path, entry.second)
                case Op.LINK:
                    self._name(None, entry.second, self._names.get(entry.path))
                case Op.UNLINK:
                    self._name(entry.path, None, None)
                case Op.MKDIR:
                    self._name(None, entry.path, None)
                case _:
                    pass

    def cut(self, chance: random.Random, into: Path | None = None) -> None:
        """Leave in the directory what a power cut leaves of it; or `into` another."""
        likely = chance.choice((0.0, 0.5, 1.0))
        names = dict(self._safe)
        for change in self._pending:
            if chance.random() < likely:
                _apply(names, change)
        root = self._root if into is None else str(into)
        shutil.rmtree(root, ignore_errors=True)
        # The machine was off for a while.
        then = time.time() - OFF_SECONDS
        contents: dict[int, bytes] = {}
        for path in sorted(names):
            node, target = names[path], Path(root + path[len(self._root) :])
            if path != self._root and not target.parent.is_dir():
                continue  # its directory is not on the disk
            if node is None:
                target.mkdir()
                continue
            if id(node) not in contents:
                contents[id(node)] = node.left(chance)
            target.write_bytes(contents[id(node)])
            target.chmod(node.mode)
            os.utime(target, (then, then))

    def _open(self, entry: Entry) -> None:
        known = self._nodes.get(entry.inode)
        if known is None or self._names.get(entry.path) is not known:
            # New, also where its number was that of a file that is gone.
            known = self._nodes[entry.inode] = Node()
            self._name(None, entry.path, known)
        elif entry.flags:
            known.pending.append((0, None))

    def _name(self, old: str | None, new: str | None, node: Node | None) -> None:
        directories = frozenset(os.path.dirname(path) for path in (old, new) if path)  # noqa: PTH120 - of a text
        change = Naming(old, new, node, directories)
        _apply(self._names, change)
        self._pending.append(change)

    def _rename(self, old: str, new: str) -> None:
        node = self._names.get(old)
        if node is None:
            # A whole directory: what is in it goes along, whether it was synced or not.
            self._sync_all()
        self._name(old, new, node)
        if node is None:
            self._sync_all()

    def _sync_directory(self, path: str) -> None:
        rest: list[Naming] = []
        for change in self._pending:
            if path in change.directories:
                _apply(self._safe, change)
            else:
                rest.append(change)
        self._pending = rest

    def _sync_all(self) -> None:
        for change in self._pending:
            _apply(self._safe, change)
        self._pending = []
        for node in self._nodes.values():
            node.sync()


def _apply(names: dict[str, Node | None], change: Naming) -> None:
    if change.old is not None:
        if change.new is not None and change.node is None:
            for path in [each for each in names if each.startswith(f"{change.old}/")]:
                names[change.new + path[len(change.old) :]] = names.pop(path)
        names.pop(change.old, None)
    if change.new is not None:
        names[change.new] = change.node
