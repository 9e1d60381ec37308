"""Directories that a judge owns while it works."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ratchet.files import take_lock, try_lock
from ratchet.judges.judge import Deadline, OutOfTime
from ratchet.kernel import Misuse, Outcome, decoded, last_line
from ratchet.sandbox import Bounds, Finished, Node, Policy, Stopped, run
from ratchet.workspaces.directories import Unpinnable, tree_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """`name` in `file` is called in a sandboxed node: it is given one JSON value and returns one.

    `modules` are imported before it starts. A node can start no other process and writes nowhere.
    """

    file: str
    name: str
    modules: tuple[str, ...] = ()

    def node(self, source: str, directory: Path | None) -> Node:
        """The node that runs `source`. With a `directory` that it is shown, it can import what lies beside its file."""
        called = self.file if directory is None else str(directory / self.file)
        return Node(source, self.name, self.modules, file=called)


def check_one_way(who: str, argv: tuple[str, ...], function: Function | None) -> None:
    """Raise `Misuse` unless there is one way to run it."""
    if not argv and function is None:
        raise Misuse(f"the {who} has no command to run")
    if argv and function is not None:
        raise Misuse(f"the {who} has a command and a function", hint="leave one of them out")


_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    # A cache beside a module is one more file that somebody could have written.
    "PYTHONDONTWRITEBYTECODE": "1",
}


async def run_confined(
    work: Sequence[str] | Node,
    *,
    cwd: Path | None = None,
    bounds: Bounds,
    policy: Policy,
    deadline: Deadline,
    words: Mapping[str, object] | None = None,
    places: Mapping[Path, Path] | None = None,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Finished:
    """Run a command or a node in the sandbox, with these directories and variables on top of `policy`.

    In a command, `{python}` and the names in `words` are filled in; other braces stay, since they may be meant. Raises
    `OutOfTime` when the deadline did not leave the time that `bounds` promise, and what the sandbox raises.
    """
    allowed = deadline.cut(bounds)
    texts = {"python": sys.executable, **(words or {})}
    finished = await run(
        work if isinstance(work, Node) else [_filled(word, texts) for word in work],
        cwd=cwd,
        stdin=stdin,
        bounds=allowed,
        policy=replace(
            policy,
            readable=tuple(dict.fromkeys((*policy.readable, *readable))),
            writable=tuple(dict.fromkeys((*policy.writable, *writable))),
            places={**policy.places, **(places or {})},
            environment={**_ENVIRONMENT, **policy.environment, **(environment or {})},
        ),
    )
    if finished.stopped is Stopped.WALL and allowed != bounds:
        raise OutOfTime
    return finished


def _filled(word: str, texts: Mapping[str, object]) -> str:
    for name, text in texts.items():
        word = word.replace(f"{{{name}}}", str(text))
    return word


_SHOWN = 64 * 1024
# What a shell and the sandbox exit with when there is no such program, or it may not be run.
NOT_RUN = (126, 127)
_STOPPED = {
    Stopped.WALL: "it did not end in time",
    Stopped.CPU: "it used more CPU time than it may",
    Stopped.MEMORY: "it used more memory than it may",
    Stopped.PROCESSES: "it started more processes than it may",
    Stopped.DISK: "it wrote more to disk than it may",
    Stopped.OUTPUT: "it wrote more output than it may",
    Stopped.CANCELLED: "it was cancelled",
}


def ending_text(finished: Finished) -> str:
    """How it ended, in words, with the last thing it said."""
    how = ended(finished)
    last = last_words(finished)
    return f"{how}: {last}" if last and not finished.ok else how


def ended(finished: Finished) -> str:
    """How it ended, in words."""
    if finished.stopped is not None:
        return _STOPPED[finished.stopped]
    if finished.signal is not None:
        return f"it was ended by {_signal_name(finished.signal)}"
    if finished.exit_code == 0 and finished.problem is not None:
        return f"it {finished.problem}"
    if finished.exit_code is not None:
        return f"it exited with {finished.exit_code}"
    return "it could not be run"


def last_words(finished: Finished) -> str:
    """The last line that it wrote."""
    return _last_line(finished.stderr) or _last_line(finished.stdout)


def over_time(finished: Finished) -> bool:
    """Whether it was stopped because it took too long."""
    return finished.stopped in (Stopped.WALL, Stopped.CPU)


def blame(finished: Finished) -> Outcome:
    """Who is to blame for a process that is not `ok`, when it ran the candidate's code.

    Too slow, too large, too loud, crashed, or a code other than 0: that is the candidate, which fails. A process that
    never ran, or that we ended ourselves, says nothing of it: that is an error.
    """
    ran = finished.stopped is not None or finished.signal is not None or finished.exit_code is not None
    ours = finished.stopped is Stopped.CANCELLED or finished.exit_code in NOT_RUN
    return Outcome.FAILED if ran and not ours else Outcome.ERROR


def described(finished: Finished, *, tail: int = _SHOWN) -> dict[str, Any]:
    """What is recorded of it, output included as far as it is short."""
    return {
        "exit_code": finished.exit_code,
        "signal": finished.signal,
        "stopped": finished.stopped,
        "problem": finished.problem,
        "wall_ms": finished.wall_ms,
        "cpu_ms": finished.cpu_ms,
        "peak_bytes": finished.peak_bytes,
        "layers": finished.layers,
        "bounded_by": dict(finished.bounded_by),
        "stdout": _tail(finished.stdout, tail),
        "stderr": _tail(finished.stderr, tail),
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(output: bytes) -> str:
    return last_line(decoded(output[-4096:]))[:300]


def _tail(output: bytes, most: int) -> str:
    text = decoded(output[-most:])
    return text if len(output) <= most else f"… ({len(output) - most} bytes before this) {text}"


T = TypeVar("T")
_PREFIX = "ratchet-judge-"
# One that is younger may be about to be locked.
_NEW_SECONDS = 60.0


@asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """A fresh, empty directory that only this process's user can enter; gone afterwards with all that is in it.

    It is locked while it is in use. Those that nobody holds any more were left by processes that were killed: the first
    use in a process removes them.
    """
    await in_thread(_sweep)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_home()))
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # where there are no locks, nobody sweeps either
            take_lock(lock)
        yield directory
    finally:
        await in_thread(lambda: _remove(directory))
        os.close(lock)


async def copied(source: Path, target: Path) -> Path:
    """A copy of `source` at `target`. Links stay links."""
    await in_thread(lambda: shutil.copytree(source, target, symlinks=True))
    return target


async def in_thread(work: Callable[[], T], *, unless: bool = False) -> T:
    """Do `work` without holding up others. A cancellation waits for it: nothing is left half-way in the background.

    `unless` it is known to be done sooner than a thread takes it up: then it is done at once.
    """
    if unless:
        return work()
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _home() -> Path:
    return Path(tempfile.gettempdir()).resolve()


@cache
def _sweep() -> None:
    for directory in _home().glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or another process was quicker
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_mtime < time.time() - _NEW_SECONDS and try_lock(lock):
                    _remove(directory)
            finally:
                os.close(lock)


def _remove(directory: Path) -> None:
    """Remove a tree that somebody else has made: as deep as they liked, and locked where they could.

    Whatever lies deeper is moved up first. Going down instead would need a stack as deep as the tree.
    """
    numbers = itertools.count()
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while entries := _entries(top):
            for name, is_directory in entries:
                if is_directory:
                    _empty(top, name, numbers)
                    os.rmdir(name, dir_fd=top)
                else:
                    os.unlink(name, dir_fd=top)
    finally:
        os.close(top)
    directory.rmdir()


def _empty(top: int, name: str, numbers: Iterator[int]) -> None:
    os.chmod(name, stat.S_IRWXU, dir_fd=top)
    place = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for inner, is_directory in _entries(place):
            if is_directory:
                os.chmod(inner, stat.S_IRWXU, dir_fd=place)
                os.rename(inner, f"moved-{next(numbers)}", src_dir_fd=place, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=place)
    finally:
        os.close(place)


def _entries(place: int) -> list[tuple[str, bool]]:
    with os.scandir(place) as found:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]


# More than any honest program leaves, few enough to be looked at.
MAX_ENTRIES = 200_000


class UnsafeResult(ValueError):
    """Something in a candidate's files is not what it seems to be."""


def check_plain(directory: Path) -> None:
    """Raise `UnsafeResult` unless `directory` has only files and directories: no links, no pipes, no devices."""
    for entry in _links_in(directory):
        kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            raise UnsafeResult(f"{os.path.relpath(entry.path, directory)} is neither a file nor a directory")


def _links_in(directory: Path) -> Iterator[os.DirEntry[str]]:
    waiting, count = [os.fspath(directory)], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                entries = list(found)
        except OSError as error:
            raise UnsafeResult(f"{error.filename} cannot be listed: {error.strerror}") from None
        count += len(entries)
        if count > MAX_ENTRIES:
            raise UnsafeResult(f"it has more than {MAX_ENTRIES} files")
        yield from entries
        waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


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
