"""A copy of what an engine left in a directory, taken without following anything out of it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.agents.checks.finding import NotPassed
from ratchet.agents.contract import STATE, UNTRACKED

MAX_FILES = 2_000
MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 16
_CHUNK = 1024 * 1024
_GIT = ".git"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The code of a version and its state, as they were. `files` are their paths below `directory`."""

    directory: Path
    files: frozenset[str]
    size: int

    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()


def take_snapshot(source: Path, target: Path) -> Snapshot:
    """Copy `source` to `target`, without what a running agent writes besides its state. Raises `NotPassed`.

    What is not copied may hold no traps either: servers will write there. The inside of `.git` is not looked at.
    """
    taking = _Taking()
    try:
        place = os.open(source, _OPEN | os.O_DIRECTORY)
    except OSError as error:
        raise NotPassed(f"the agent's directory cannot be read: {error.strerror}") from None
    target.mkdir()
    try:
        taking.take(place, "", target)
    finally:
        os.close(place)
    return Snapshot(target, frozenset(taking.files), taking.size)


@dataclass(slots=True)
class _Taking:
    """What was met so far."""

    entries: int = 0
    size: int = 0
    files: list[str] = field(default_factory=list)

    def take(self, place: int, below: str, target: Path | None) -> None:
        """Copy the directory that is open as `place` to `target`; without one, only look at it."""
        if below.count("/") > MAX_DEPTH:
            raise NotPassed(f"{below} lies more than {MAX_DEPTH} directories deep; put the files higher up")
        for name in self._names(place):
            path = below + name
            _check_name(path, name)
            copied = target if name not in UNTRACKED or path == STATE else None
            try:
                self._take_entry(place, name, path, None if copied is None else copied / name)
            except OSError as error:
                raise NotPassed(
                    f"{path} cannot be read: {error.strerror}; let its owner read it, or remove it"
                ) from None

    def _names(self, place: int) -> list[str]:
        names = []
        with os.scandir(place) as found:
            for entry in found:
                self.entries += 1
                if self.entries > MAX_FILES:
                    raise NotPassed(
                        f"there are more than {MAX_FILES} files; remove those that the agent does not need"
                    )
                names.append(entry.name)
        return sorted(names)

    def _take_entry(self, place: int, name: str, path: str, target: Path | None) -> None:
        mode = os.stat(name, dir_fd=place, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if path != _GIT:
                self._take_directory(place, name, path, target)
        elif stat.S_ISREG(mode):
            self._take_file(os.open(name, _OPEN | os.O_NONBLOCK, dir_fd=place), path, target)
        elif stat.S_ISLNK(mode):
            raise NotPassed(
                f"{path} is a link to {os.readlink(name, dir_fd=place)}; put the file itself there"
            )
        else:
            raise NotPassed(f"{path} is neither a file nor a directory; remove it")

    def _take_directory(self, place: int, name: str, path: str, target: Path | None) -> None:
        deeper = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=place)
        try:
            if target is not None:
                target.mkdir()
            self.take(deeper, f"{path}/", target)
        finally:
            os.close(deeper)

    def _take_file(self, descriptor: int, path: str, target: Path | None) -> None:
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotPassed(f"{path} is not a plain file; remove it")
            if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
                raise NotPassed(f"{path} has the setuid or setgid bit; take it away with chmod")
            if found.st_nlink > 1:
                raise NotPassed(f"{path} has {found.st_nlink} names (hard links); write a file of its own")
            if target is None:
                return
            with target.open("wb") as copy:
                while chunk := file.read(_CHUNK):
                    self.size += len(chunk)
                    if self.size > MAX_BYTES:
                        raise NotPassed(
                            f"the files have more than {MAX_BYTES} bytes; remove what the agent does not need"
                        )
                    copy.write(chunk)
            target.chmod(0o755 if found.st_mode & stat.S_IXUSR else 0o644)
            self.files.append(path)


def _check_name(path: str, name: str) -> None:
    if not name.isprintable():
        raise NotPassed(f"{path!a} has a name that cannot be printed; rename it")
    if name.casefold() == _GIT and path != _GIT:
        raise NotPassed(f"{path} would be a repository inside the agent's own; remove it")
