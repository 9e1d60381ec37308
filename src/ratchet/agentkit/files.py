"""Files that are replaced as a whole, and locks: among processes on a file, among threads in memory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakValueDictionary

from ratchet.agentkit.errors import StateBusy, StateDamaged

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_WHAT_TO_DO = "move it away"


def opened(path: Path, flags: int) -> int:
    """A descriptor of the file at `path`. Raises `StateDamaged` if a link or anything but a file lies there."""
    try:
        # A pipe that lies there must not keep us waiting for its other end.
        descriptor = os.open(path, flags | _NO_LINK | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise StateDamaged(f"{path} is no plain file", hint=_WHAT_TO_DO) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StateDamaged(f"{path} is no plain file", hint=_WHAT_TO_DO)
    return descriptor


def read_whole(path: Path, most: int) -> bytes | None:
    """What the file holds; `None` if there is none. Raises `StateDamaged` if that is more than `most` bytes."""
    try:
        descriptor = opened(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise StateDamaged(f"{path} is larger than {most:,} bytes", hint=_WHAT_TO_DO)
    return content


def replace_whole(path: Path, content: bytes) -> None:
    """Make `content` the file's content: for every reader, and after every crash, it is the old one or the new one.

    One caller at a time. When it returns, the content is on the disk.
    """
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    try:
        descriptor = opened(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_PAUSE_SECONDS = 0.005


class Hold:
    """The right to write, from the moment it was had until the end of its block."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def check(self) -> None:
        """Raise `StateBusy` in a process that was forked inside the block: the lock is its parent's."""
        if self._descriptor is None:
            raise StateBusy(
                f"this process was forked while its parent held {self.path}", hint="open the state again here"
            )

    def end(self) -> None:
        if self._descriptor is not None:
            # Said aloud, for a copy of the descriptor in a child would keep the lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Let go of the file without a word: what a forked child does with what it inherited."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Gate:
    """Where the threads of this process queue for one file."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None


class _Gates:
    """The gates that somebody waits at or has passed, and the locks on files behind them."""

    def __init__(self) -> None:
        # Two threads that come to one file at once must find one gate.
        self._lock = threading.Lock()
        self._gates: WeakValueDictionary[str, _Gate] = WeakValueDictionary()
        self.holds: set[Hold] = set()

    def gate(self, path: Path) -> _Gate:
        with self._lock:
            return self._gates.setdefault(os.path.realpath(path), _Gate())


_gates = _Gates()


def _after_fork() -> None:
    """Leave to the parent what is its own: in the child no other thread is alive to give a lock back."""
    global _gates
    inherited, _gates = _gates, _Gates()
    for hold in inherited.holds:
        hold.forget()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def held(path: Path, patience: float | None) -> Iterator[Hold]:
    """Hold the lock file at `path` for the block. A process that dies gives it back.

    Raises `StateBusy` after `patience` seconds (`None` waits as long as it takes), and at once in a thread that
    holds it already.
    """
    deadline = None if patience is None else time.monotonic() + patience
    gates = _gates
    gate = gates.gate(path)
    if gate.owner == threading.get_ident():
        raise StateBusy(
            f"this thread already holds {path}",
            hint="do not open the state inside `with state.edit()`, nor await there: change what the block was given",
        )
    if not gate.lock.acquire(timeout=-1 if deadline is None else max(0.0, deadline - time.monotonic())):
        raise _too_long(path, patience)
    try:
        gate.owner = threading.get_ident()
        hold = _file_held(path, deadline, patience)
        gates.holds.add(hold)
        try:
            yield hold
        finally:
            gates.holds.discard(hold)
            hold.end()
    finally:
        gate.owner = None
        gate.lock.release()


def _file_held(path: Path, deadline: float | None, patience: float | None) -> Hold:
    while True:
        descriptor = opened(path, os.O_RDWR | os.O_CREAT)
        try:
            if not _locked(descriptor, deadline):
                raise _too_long(path, patience)
            # Who removes the file makes room for another lock of the same name; only the one that lies there counts.
            if _lies_at(descriptor, path):
                return Hold(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _locked(descriptor: int, deadline: float | None) -> bool:
    if deadline is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True


def _lies_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _too_long(path: Path, patience: float | None) -> StateBusy:
    return StateBusy(
        f"another process has held {path} for {patience:g} s",
        hint="hold it only for the change itself; try again",
    )
