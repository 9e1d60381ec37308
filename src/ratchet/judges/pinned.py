"""A directory whose content decides something, held to the hash that it had."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ratchet.judges.fingerprint import Unpinnable, tree_hash
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Misuse

# A file that was written this shortly before it was read may be written again without a trace: clocks have ticks.
_SETTLED_NS = 2_000_000_000
# Looking at so few files is quicker than asking a thread to do it.
_FEW = 50

_Stamps = tuple[tuple[str, int, int, int, int, int, int], ...]


class Changed(Exception):
    """A pinned directory is not what it was."""


class _Seen(NamedTuple):
    """How everything in a directory was stamped when its content was found to be right."""

    stamps: _Stamps
    settled: bool


@dataclass(frozen=True, slots=True)
class Pinned:
    """`sha256` is worked out at once, or given, to hold the directory to what somebody saw before.

    Content is read again only when a file was touched since: a change that leaves size, times of content and inode, and
    inode number of a file as they were is beyond what an ordinary user can make. `entries` is how many files and
    directories there are.
    """

    directory: Path
    sha256: str = ""
    entries: int = field(default=0, init=False, compare=False)
    _seen: list[_Seen] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", Path(self.directory).resolve())
        try:
            found, seen = self._read()
        except (OSError, Unpinnable) as error:
            raise Misuse(
                f"{self.directory} cannot be pinned: {error}",
                hint="give a directory of plain files, without links",
            ) from None
        object.__setattr__(self, "entries", len(seen.stamps))
        if not self.sha256:
            object.__setattr__(self, "sha256", found)
        self._remember(found, seen)

    def check(self) -> None:
        """Raise `Changed` when the content is not what it was."""
        if self._is_untouched():
            return
        try:
            found, seen = self._read()
        except (OSError, Unpinnable) as error:
            raise Changed(f"{self.directory} cannot be read as it was: {error}") from None
        self._remember(found, seen)
        if found != self.sha256:
            raise Changed(f"{self.directory} was changed: its hash is {found}, not {self.sha256}")

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Raises `Changed` when the content is not what it was, before or after, whatever was found out meanwhile."""
        await self._check()
        try:
            yield
        except Exception:
            await self._check()
            raise
        await self._check()

    async def _check(self) -> None:
        if not (self.entries <= _FEW and self._is_untouched()):
            await in_thread(self.check)

    def _read(self) -> tuple[str, _Seen]:
        """The hash of the content, and how the files were stamped before they were read."""
        now = time.time_ns()
        stamps = _stamps(self.directory)
        found = tree_hash(self.directory)
        newest = max((stamp[-1] for stamp in stamps), default=0)
        return found, _Seen(stamps, settled=newest < now - _SETTLED_NS)

    def _remember(self, found: str, seen: _Seen) -> None:
        self._seen[:] = [seen] if found == self.sha256 and seen.settled else []

    def _is_untouched(self) -> bool:
        seen = self._seen[:1]
        try:
            return [_stamps(self.directory)] == [each.stamps for each in seen]
        except OSError:
            return False


def _stamps(directory: Path) -> _Stamps:
    """Name, kind, place, size and times of everything below `directory`."""
    found: list[tuple[str, int, int, int, int, int, int]] = []
    waiting = [os.fspath(directory)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                told = entry.stat(follow_symlinks=False)
                size = 0 if stat.S_ISDIR(told.st_mode) else told.st_size
                times = (told.st_mtime_ns, told.st_ctime_ns)
                found.append((entry.path, told.st_mode, told.st_dev, told.st_ino, size, *times))
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return tuple(sorted(found))
