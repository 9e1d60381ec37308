"""The objects of a repository: read through a running git, written as loose objects, remembered while in use."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ratchet.files import name_files, write_new
from ratchet.kernel import Misuse, NotFound, decoded, exact_bytes
from ratchet.workspaces.errors import RepositoryUnwritable, TooLarge
from ratchet.workspaces.git import Conversation, Git, damaged
from ratchet.workspaces.trees import (
    DIRECTORY,
    LINK,
    ReadTree,
    Tree,
    TreeBounds,
    parse_tree,
    tree_content,
    tree_of,
)

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Values by hash; the least recently used go first once their weights exceed the room."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._used = 0
        self._values: OrderedDict[str, tuple[Value, int]] = OrderedDict()
        # Order and sum change together.
        self._lock = threading.Lock()

    def get(self, key: str) -> Value | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: str, value: Value, weight: int) -> None:
        with self._lock:
            if key in self._values or weight > self._room // 4:
                return
            self._values[key] = (value, weight)
            self._used += weight
            while self._used > self._room:
                _, (_, freed) = self._values.popitem(last=False)
                self._used -= freed


_FRESH_SECONDS = 24 * 3600
# A kernel writes to the disk by itself what is older than half a minute. Git does not wait for its objects.
_YOUNG_SECONDS = 600
_COMPRESSION = 1
_REMEMBERED_BYTES = 64 * 1024
_MODE = 0o444
_number = itertools.count()


class ObjectBatch:
    """Objects that appear in the repository together, at `finish`. One thread at a time.

    `mark` is part of the names of unfinished files, so that those of a dead process can be told.
    """

    def __init__(
        self,
        directory: Path,
        algorithm: str,
        read_tree: ReadTree,
        mark: str,
        *,
        dry: bool = False,
    ) -> None:
        self._directory = directory
        self._algorithm = algorithm
        self._read_tree = read_tree
        self._mark = mark
        self._dry = dry
        self._waiting: dict[str, str] = {}
        # Objects that somebody else has named a short while ago, and that may not be on disk yet.
        self._young: list[str] = []
        # What was written, as far as it is small: the next workspace will most likely ask for it.
        self.contents: dict[str, bytes] = {}
        self.trees: dict[str, Tree] = {}

    def blob(self, content: bytes, known: str | None = None) -> str:
        """The hash of a file. One that is `known` to be in the repository is not written again."""
        return self.add(b"blob", content, known)

    def tree(self, entries: Tree) -> str:
        content = tree_content(entries)
        number = self.add(b"tree", content)
        self.trees[number] = entries
        return number

    def read_tree(self, number: str) -> Tree:
        """A tree of this batch or of the repository."""
        return self.trees[number] if number in self.trees else self._read_tree(number)

    def add(self, kind: bytes, content: bytes, known: str | None = None) -> str:
        whole = b"%s %d\0%s" % (kind, len(content), content)
        number = hashlib.new(self._algorithm, whole).hexdigest()
        if number == known or self._dry:
            return number
        if number not in self._waiting and number not in self.contents and not self._is_there(number):
            self._write(number, zlib.compress(whole, _COMPRESSION))
            if len(content) <= _REMEMBERED_BYTES:
                self.contents[number] = content
        return number

    def content(self, number: str) -> bytes | None:
        """What was added and is not yet in the repository."""
        if number in self.contents or number not in self._waiting:
            return self.contents.get(number)
        return zlib.decompress(Path(self._waiting[number]).read_bytes()).partition(b"\0")[2]

    def finish(self) -> None:
        """Give every object its name, in the order in which they were added, once all of them are on disk.

        The names are on disk when it returns.
        """
        names = [(temporary, self._path(number)) for number, temporary in self._waiting.items()]
        with self._translated():
            name_files(names, self._make_directory, named=self._young)
            self._waiting.clear()

    def abandon(self) -> None:
        """Leave nothing of what was not finished."""
        for temporary in self._waiting.values():
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108 - as above
        self._waiting.clear()

    def _is_there(self, number: str) -> bool:
        """Whether a loose object has this hash. It is made young again, so that git's collector lets it be."""
        path = self._path(number)
        try:
            found = os.stat(path)  # noqa: PTH116 - a Path costs more than the call
            age = time.time() - found.st_mtime
            if found.st_size and age > _FRESH_SECONDS:
                os.utime(path)
            if found.st_size and age < _YOUNG_SECONDS:
                self._young.append(path)
        except FileNotFoundError:
            return False
        except OSError:  # it belongs to somebody else, who also sees to its age
            return True
        # A power cut may have left a name without content.
        return found.st_size > 0

    def _write(self, number: str, packed: bytes) -> None:
        temporary = temporary_file(self._directory, self._mark)
        with self._translated():
            write_new(temporary, packed, _MODE)
            self._waiting[number] = temporary

    def _path(self, number: str) -> str:
        return f"{self._directory}/{number[:2]}/{number[2:]}"

    def _make_directory(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        shared = self._directory.stat().st_mode & 0o2070
        if shared & 0o2020:  # a repository that a group shares
            directory.chmod(directory.stat().st_mode & 0o7777 | shared)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RepositoryUnwritable(
                f"an object could not be written to {self._directory}: {error.strerror}",
                hint="free some space or make the directory writable, then try again",
            ) from error


def temporary_file(directory: Path, mark: str) -> str:
    """A name for what is not finished, which nobody else uses."""
    return f"{directory}/tmp_obj_{mark}_{next(_number)}"


def remove_unfinished(directory: Path, mark: str, *, older_than: float = 0) -> int:
    """Delete what a dead process did not finish; how many files."""
    oldest = time.time() - older_than
    count = 0
    for file in directory.glob(f"tmp_obj_{mark}_*"):
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_mtime <= oldest:
                file.unlink()
                count += 1
    return count


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
            self._reader.say(exact_bytes(f"{revision}^{{commit}}\n"))
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
            named = decoded(said).strip()
        # A full hash that nothing knows of is no damage; one that a ref or a file stands for is.
        expected = _HASH.fullmatch(named) and (named != revision or self._is_stored(named))
        if expected and not self._git.run("cat-file", "-t", named, fine=(0, 1, 128)):
            raise damaged(self._git.directory, f"{revision} is {named}, which is missing or unreadable")
        raise NotFound("commit", revision)

    def are_at_hand(self, commit: str, *, most: int) -> bool:
        """Whether all that a commit holds is in memory: no more than `most` files, and no links or submodules."""
        content = self._contents.get(commit) or b""
        return content.startswith(b"tree ") and self._room_left(tree_of(content), most) >= 0

    def content(self, number: str, batch: ObjectBatch | None, *, limit: int | None = None) -> bytes:
        """A file of the repository, or of a batch that is not finished."""
        known = None if batch is None else batch.content(number)
        return known if known is not None else self.read(number, "blob", limit=limit)

    @contextlib.contextmanager
    def batch(self, mark: str, *, dry: bool = False) -> Iterator[ObjectBatch]:
        """Objects written in the block appear at its end, or not at all when it raises. `dry` only works out hashes.

        They are on disk then.
        """
        batch = ObjectBatch(self.directory, self.algorithm, self.tree, mark, dry=dry)
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
                header = decoded(self._reader.line()).split(" ")
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
        said = decoded(self._reader.complaint()).partition("\n")[0]
        return damaged(self._git.directory, f"the {kind} {number} is missing or unreadable {said}".strip())

    def _is_stored(self, number: str) -> bool:
        return (self.directory / number[:2] / number[2:]).exists()


_REMEMBERED = 50_000


class TreeFacts(NamedTuple):
    """`files` counts directories too, `depth` how deep they are nested."""

    files: int
    depth: int
    links: tuple[str, ...]


class Surveyor:
    """Surveys trees; a subtree is looked at once, so a new commit costs only what is new in it."""

    def __init__(self) -> None:
        self._known: Cache[TreeFacts] = Cache(_REMEMBERED)
        self._sound: Cache[bool] = Cache(_REMEMBERED)

    def has_sound_links(self, tree: str) -> bool:
        """Whether the links of a whole tree were found to stay inside it."""
        return self._sound.get(tree) is not None

    def note_sound_links(self, tree: str) -> None:
        self._sound.put(tree, True, 1)

    def survey(self, read: ReadTree, tree: str, bounds: TreeBounds, path: str = "") -> TreeFacts:
        """Raises `TooLarge` beyond the bounds, before a small object can stand for billions of files."""
        known = self._known.get(tree)
        above = path.count("/")
        if above + (known.depth if known else 0) > bounds.depth:
            raise TooLarge(
                path or ".", f"is more than {bounds.depth} directories deep", "depth", bounds.depth
            )
        if known is None:
            known = self._look(read, tree, bounds, path)
            self._known.put(tree, known, len(known.links) + 1)
        if known.files > bounds.files:
            raise _too_many(path, bounds)
        return known

    def _look(self, read: ReadTree, tree: str, bounds: TreeBounds, path: str) -> TreeFacts:
        files = depth = 0
        links: list[str] = []
        for name, entry in read(tree).items():
            files += 1
            if entry.mode == DIRECTORY:
                below = self.survey(read, entry.hash, bounds, f"{path}{name}/")
                files += below.files
                depth = max(depth, below.depth + 1)
                links += [f"{name}/{link}" for link in below.links]
            elif entry.mode == LINK:
                links.append(name)
            if files > bounds.files:
                raise _too_many(path, bounds)
        return TreeFacts(files, depth, tuple(links))


def _too_many(path: str, bounds: TreeBounds) -> TooLarge:
    return TooLarge(path or ".", f"holds more than {bounds.files} files", "files", bounds.files)
