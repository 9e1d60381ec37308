"""The files of one session of an agent program: its own directory, what is kept to resume it, what it must not see.

It is locked while the session lives. A process that is killed leaves its directory behind without a lock, and the next
session of any process removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ratchet.engines.engine import Failure, Fault
from ratchet.files import discard, locked_directory, take_lock, try_lock
from ratchet.kernel import Misuse


@contextlib.asynccontextmanager
async def session_home(home: Path) -> AsyncIterator[Path]:
    """An empty directory below Ratchet's `home` that only its owner can enter; it goes soon after the block.

    Raises `Fault` if none can be made.
    """
    directory, lock = await asyncio.to_thread(_make, home / "sessions" / "live")
    try:
        yield directory
    finally:
        # It is not waited for: agents leave many files, and the lock is held until they are gone.
        asyncio.get_running_loop().run_in_executor(None, _remove, directory, lock)


def _make(root: Path) -> tuple[Path, int]:
    root = root.absolute()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # While it is held, no directory below is without its lock unless its owner is dead.
        with locked_directory(root):
            _sweep(root)
            directory = Path(tempfile.mkdtemp(dir=root))
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            take_lock(lock)
    except OSError as error:
        raise Fault(
            Failure.MISSING,
            f"no directory for a session can be made in {root}: {error.strerror}",
            hint="make the directory writable or free some space, then try again",
        ) from error
    return directory, lock


def _sweep(root: Path) -> None:
    for leftover in root.iterdir():
        with contextlib.suppress(OSError):
            lock = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY)
            if try_lock(lock):
                _remove(leftover, lock)
            else:
                os.close(lock)


def _remove(directory: Path, lock: int) -> None:
    # What cannot be removed now is swept later; it must not turn a session that ended well into a failure.
    discard(directory)
    os.close(lock)


_MOST_BYTES = 64 * 1024 * 1024
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignFile(NamedTuple):
    """A file at `path` below `top`, where a program of the session could write: only a plain file counts, and none that
    a link leads to."""

    top: Path
    path: Path

    def open(self) -> BinaryIO:
        """Raises `OSError`, also for anything but a plain file."""
        descriptor = os.open(self.top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *directories, name = self.path.relative_to(self.top).parts
            for part in directories:
                inner = os.open(part, _TO_READ | os.O_DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            # Not blocking, since it could be a pipe.
            file = os.fdopen(os.open(name, _TO_READ | os.O_NONBLOCK, dir_fd=descriptor), "rb")
        finally:
            os.close(descriptor)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "it is no plain file", str(self.path))
        return file

    def read(self, most: int = _MOST_BYTES) -> bytes:
        """All of it. Raises `OSError`, also for more than `most` bytes."""
        with self.open() as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(self.path))
        return content


_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDING = ".jsonl.gz"


def _today() -> date:
    return datetime.now(UTC).date()


class KeptSessions:
    """Compressed files at `directory/DAY/TOKEN`, for as many days as are given."""

    def __init__(self, directory: Path, days: int, *, today: Callable[[], date] = _today) -> None:
        self._directory = directory
        self._days = days
        self._today = today

    def put(self, token: str, content: bytes) -> None:
        """Keep what belongs to `token`, in place of what was kept before, and forget what is too old."""
        if not _TOKEN.fullmatch(token):
            raise ValueError(f"{token!r} is not the id of a session")
        target = self._directory / self._today().isoformat() / (token + _ENDING)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Beside it and renamed: a process that dies here leaves no half file.
        descriptor, temporary = tempfile.mkstemp(dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(gzip.compress(content, 1))
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)
        for day, older in self._kept():
            if older != target.parent:
                (older / target.name).unlink(missing_ok=True)
            if day < self._today() - timedelta(days=self._days):
                shutil.rmtree(older, ignore_errors=True)

    def get(self, token: str) -> bytes | None:
        """What was kept for `token`; nothing if it is not kept any more, or damaged."""
        # The token comes from outside and becomes a path.
        if not _TOKEN.fullmatch(token):
            return None
        for _, directory in self._kept():
            try:
                return gzip.decompress((directory / (token + _ENDING)).read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, EOFError, zlib.error):
                return None
        return None

    def restore(self, token: str, target: Path) -> bool:
        """Write what was kept for `token` to `target`; false if it is not kept any more."""
        content = self.get(token)
        if content is None:
            return False
        target.parent.mkdir(parents=True)
        target.write_bytes(content)
        return True

    def _kept(self) -> list[tuple[date, Path]]:
        """Every day with what was kept on it, the latest first."""
        found = []
        for path in self._directory.glob("????-??-??"):
            try:
                found.append((date.fromisoformat(path.name), path))
            except ValueError:
                continue  # not ours
        return sorted(found, reverse=True)


_SECRETS = (
    *(
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".netrc",
        ".git-credentials",
        ".npmrc",
        ".pypirc",
    ),
    *(".codex", ".claude", ".claude.json", ".gemini", ".config/gh", ".config/gcloud"),
    *(".local/share/opencode/auth.json", ".local/share/keyrings"),
)
_LOGIN_HOMES = ("CODEX_HOME", "CLAUDE_CONFIG_DIR")
# Each costs a mount. What lies deeper, or beside many others, is workspaces rather than secrets.
_MOST = 64


def private_places(
    home: Path, environment: Mapping[str, str], shown: Sequence[Path], hidden: Sequence[Path] = ()
) -> tuple[Path, ...]:
    """Paths to hide from a session that needs only `shown` of Ratchet's `home`: those `hidden` by whom it is for first.

    Raises `Misuse` when something would be both.
    """
    needed = [path.resolve() for path in shown]
    asked = [path.resolve() for path in hidden if path.exists()]
    for place in asked:
        if any(path.is_relative_to(place) for path in needed):
            raise Misuse(f"{place} cannot be hidden from a session that needs something in it")
    user = environment.get("HOME")
    secrets = [Path(user, name) for name in _SECRETS] if user and Path(user).is_absolute() else []
    # Where agent programs keep their logins, if not in the usual place.
    moved = [Path(environment[name]) for name in _LOGIN_HOMES if environment.get(name)]
    secrets += [path for path in moved if path.is_absolute()]
    there = [path for path in secrets if path.exists() and not _leads_through_link(path, Path(user or "/"))]
    return (*asked, *(*there, *_beside(home.resolve(), needed))[:_MOST])


def _beside(directory: Path, shown: Sequence[Path]) -> Iterator[Path]:
    """Everything in `directory` that is not on the way to what is shown, the nearest first."""
    on_the_way = []
    for child in sorted(directory.iterdir()):
        if child.is_symlink() or child in shown:
            continue
        if any(path.is_relative_to(child) for path in shown):
            on_the_way.append(child)
        else:
            yield child
    for child in on_the_way:
        yield from _beside(child, shown)


def _leads_through_link(path: Path, top: Path) -> bool:
    return any(
        each.is_symlink() for each in (path, *path.parents) if each != top and each.is_relative_to(top)
    )
