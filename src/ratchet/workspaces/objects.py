"""The objects of a repository: read through a running git, written as loose objects, remembered while in use."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ratchet.kernel import Misuse, NotFound
from ratchet.workspaces.cache import Cache
from ratchet.workspaces.conversation import Conversation
from ratchet.workspaces.errors import TooLarge
from ratchet.workspaces.git import Git, damaged
from ratchet.workspaces.history import tree_of
from ratchet.workspaces.loose import Batch, temporary_file
from ratchet.workspaces.trees import DIRECTORY, Tree, parse_tree

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# Questions sent ahead of their answers: they must fit into a pipe, or both sides would wait for each other.
_AHEAD = 500
_CACHED_BYTES = 8 * 1024 * 1024
_CACHED_FILE = 64 * 1024
_CACHED_ENTRIES = 50_000
# What it takes to remember even the smallest: most objects of a long history are.
_OVERHEAD_BYTES, _OVERHEAD_ENTRIES = 512, 5


class Objects:
    """Thread-safe. Several processes may read and write the same repository."""

    def __init__(self, git: Git, directory: Path, algorithm: str) -> None:
        self.directory = directory
        self.algorithm = algorithm
        self._git = git
        self._hash_bytes = hashlib.new(algorithm).digest_size
        self._reader = Conversation(git, "cat-file", "--batch")
        self._contents: Cache[bytes] = Cache(_CACHED_BYTES)
        self._trees: Cache[Tree] = Cache(_CACHED_ENTRIES)

    def tree(self, number: str) -> Tree:
        found = self._trees.get(number)
        if found is None:
            found = parse_tree(self.read(number, "tree"), self._hash_bytes)
            self._trees.put(number, found, len(found) + _OVERHEAD_ENTRIES)
        return found

    def read(self, number: str, kind: str, *, limit: int | None = None) -> bytes:
        [content] = self.read_many([number], kind, limit=limit)
        return content

    def read_many(self, numbers: Sequence[str], kind: str, *, limit: int | None = None) -> Iterator[bytes]:
        """The contents in order, all of one `kind`. Raises `RepositoryCorrupt`, or `TooLarge` beyond `limit` bytes."""
        for start in range(0, len(numbers), _AHEAD):
            wanted = numbers[start : start + _AHEAD]
            found = [self._contents.get(number) for number in wanted]
            missing = [number for number, content in zip(wanted, found, strict=True) if content is None]
            if not missing:
                yield from (content for content in found if content is not None)
                continue
            fresh = dict(zip(missing, self._fetch(missing, kind, limit), strict=True))
            for number, content in zip(wanted, found, strict=True):
                yield fresh[number] if content is None else content

    def find_commit(self, revision: str) -> tuple[str, bytes] | None:
        """The hash and content of the commit that a revision names, or `None`."""
        if not revision or any(character in revision for character in "\n\0"):
            raise Misuse(f"{revision!r} does not name a commit", hint="give a hash, a branch or a tag")
        cached = self._contents.get(revision) if _HASH.fullmatch(revision) else None
        if cached is not None and cached.startswith(b"tree "):
            return revision, cached
        with self._reader.turn():
            self._reader.say(f"{revision}^{{commit}}\n".encode(errors="surrogateescape"))
            header = self._reader.line().split(b" ")
            if len(header) != 3 or header[1] != b"commit" or not header[2].isdigit():
                return None
            content = self._reader.exactly(int(header[2]) + 1)[:-1]
        number = header[0].decode()
        self._contents.put(number, content, len(content) + _OVERHEAD_BYTES)
        return number, content

    def commit(self, revision: str) -> tuple[str, bytes]:
        """As `find_commit`. Raises `NotFound`, or `RepositoryCorrupt` for a ref whose commit is missing."""
        found = self.find_commit(revision)
        if found is not None:
            return found
        named = revision
        if not _HASH.fullmatch(revision) and not revision.startswith("-"):
            said = self._git.run("rev-parse", "--verify", "--quiet", revision, fine=(0, 1, 128))
            named = said.decode(errors="replace").strip()
        # A full hash that nothing knows of is no damage; one that a ref or a file stands for is.
        expected = _HASH.fullmatch(named) and (named != revision or self._is_stored(named))
        if expected and not self._git.run("cat-file", "-t", named, fine=(0, 1, 128)):
            raise damaged(self._git.directory, f"{revision} is {named}, which is missing or unreadable")
        raise NotFound("commit", revision)

    def are_at_hand(self, commit: str, *, most: int) -> bool:
        """Whether all that a commit holds is in memory: no more than `most` files, and no links or submodules."""
        content = self._contents.get(commit) or b""
        return content.startswith(b"tree ") and self._room_left(tree_of(content), most) >= 0

    def content(self, number: str, batch: Batch | None, *, limit: int | None = None) -> bytes:
        """A file of the repository, or of a batch that is not finished."""
        known = None if batch is None else batch.content(number)
        return known if known is not None else self.read(number, "blob", limit=limit)

    @contextlib.contextmanager
    def batch(self, mark: str, *, dry: bool = False) -> Iterator[Batch]:
        """Objects written in the block appear at its end, or not at all when it raises. `dry` only works out hashes.

        They are on disk then.
        """
        batch = Batch(self.directory, self.algorithm, self.tree, mark, dry=dry)
        try:
            yield batch
            batch.finish()
        finally:
            batch.abandon()
        if dry:
            return
        for number, content in batch.contents.items():
            self._contents.put(number, content, len(content) + _OVERHEAD_BYTES)
        for number, tree in batch.trees.items():
            self._trees.put(number, tree, len(tree) + _OVERHEAD_ENTRIES)

    def close(self) -> None:
        self._reader.stop()

    def _room_left(self, number: str, most: int) -> int:
        """How many more files there may be; less than none if something is not in memory."""
        tree = self._trees.get(number)
        if tree is None:
            return -1
        for entry in tree.values():
            if entry.mode == DIRECTORY:
                most = self._room_left(entry.hash, most - 1)
            else:
                known = entry.is_file and self._contents.get(entry.hash) is not None
                most = most - 1 if known else -1
            if most < 0:
                break
        return most

    def _fetch(self, numbers: Sequence[str], kind: str, limit: int | None) -> list[bytes]:
        contents = []
        with self._reader.turn():
            self._reader.say("".join(f"{number}\n" for number in numbers).encode())
            for number in numbers:
                header = self._reader.line().decode(errors="replace").split(" ")
                if len(header) != 3 or header[1] != kind:
                    raise self._unreadable(number, kind, header)
                size = int(header[2])
                if limit is not None and size > limit:
                    raise TooLarge(number, f"has {size} bytes", "file_bytes", limit)
                content = self._reader.exactly(size + 1)[:-1]
                contents.append(content)
                if size <= _CACHED_FILE:
                    self._contents.put(number, content, size + _OVERHEAD_BYTES)
        return contents

    def temporary(self, mark: str) -> str:
        """A name for a file that is not finished, in the file system of the repository."""
        return temporary_file(self.directory, mark)

    def _unreadable(self, number: str, kind: str, header: Sequence[str]) -> Exception:
        if header[-1] != "missing":
            return damaged(self._git.directory, f"{number} should be a {kind}")
        said = self._reader.complaint().decode(errors="replace").partition("\n")[0]
        return damaged(self._git.directory, f"the {kind} {number} is missing or unreadable {said}".strip())

    def _is_stored(self, number: str) -> bool:
        return (self.directory / number[:2] / number[2:]).exists()
