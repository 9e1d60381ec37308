"""Writing objects into a repository, without git.

A loose object is its kind, size and content, deflated, in a file named by its hash: a format that has not changed since
git began. Writing it here costs no process and no lock. A file is certain before it is given its name, and what refers
to others is named after them, so no moment of death leaves a repository that `git fsck` complains about.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from ratchet.ledger.files import name_files, write_new
from ratchet.workspaces.errors import RepositoryUnwritable
from ratchet.workspaces.trees import ReadTree, Tree, tree_content

_FRESH_SECONDS = 24 * 3600
# A kernel writes to the disk by itself what is older than half a minute. Git does not wait for its objects.
_YOUNG_SECONDS = 600
_COMPRESSION = 1
_REMEMBERED_BYTES = 64 * 1024
_MODE = 0o444
_number = itertools.count()


class Batch:
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
