"""The journal of files: what a transaction tells of is certain after one wait, however many files it is.

Their contents are appended to a file of records, which is waited for; then they are written under their names, which is
not. Once the disk has them by other ways the records are not needed any more. A power cut may take away files that were
named, and whoever opens the store next writes them again (`recover`).

A process that settles but a few files waits for each of them instead: a journal would cost it more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

from ratchet.ledger.disk import File, Unsettled, directory_of, put_on_disk, settle_everything
from ratchet.ledger.segment import SEGMENT_BYTES, Recorded, Segment, record_of, recorded

_DIRECTLY = 8
_LARGE_BYTES = SEGMENT_BYTES // 8


class Journal:
    """That of one process. `directory` holds those of all; names of files are told relative to its parent's parent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._base = f"{directory.parent.parent}/"
        self._count = 0
        self._open: _Open | None = None
        self._impossible = False
        self._pid = os.getpid()
        # One record after the other, and no record between a full segment and the next.
        self._lock = threading.Lock()

    def settle(self, unsettled: Unsettled) -> None:
        """Write files; they are certain when this returns. Raises `OSError`, and some of them may be there then."""
        if not unsettled:
            return
        files = unsettled.take()
        self._count += 1
        seldom = self._count <= _DIRECTLY
        with self._lock:
            large = sum(len(file.content) for file in files) > _LARGE_BYTES
            opened = None if seldom or large else self._opened()
            if opened is not None and opened.append(files):
                for file in files:
                    file.write()
                return
        for file in files:
            file.write_and_wait()

    def close(self) -> None:
        """Wait until nothing depends on the records any more, and remove them. If that fails, they stay."""
        with self._lock:
            opened, self._open = self._open, None
            if opened is not None and self._pid == os.getpid():
                opened.close()

    def recover(self) -> None:
        """Write again what power cuts have taken away, from the records of processes that are dead."""
        if not self._places():
            return
        with contextlib.ExitStack() as held:
            # One process at a time, and nobody goes on before it is done: rows tell of what is written here.
            held.enter_context(_held(self._directory, wait=True))
            dead = [place for place in self._places() if held.enter_context(_held(place))]
            _recover([place for place in dead if _is_readable(place)], self._base)

    def _places(self) -> list[Path]:
        if not os.access(self._directory, os.W_OK):
            return []  # there is none, or whoever may write here sees to it
        # What is no directory is nobody's journal.
        return [each for each in self._directory.iterdir() if each.is_dir()]

    def _opened(self) -> _Open | None:
        if self._pid != os.getpid():
            # Forked: the records are the parent's.
            self._open, self._pid = None, os.getpid()
        if self._open is None and not self._impossible:
            try:
                self._open = _Open(self._directory, self._base)
            except OSError:  # no locks here, or no room: every file can be waited for all the same
                self._impossible = True
        return self._open


class _Open:
    """Two segments: while the disk is given what one tells of, the other is written."""

    def __init__(self, directory: Path, base: str) -> None:
        self._base = base
        self._stack = contextlib.ExitStack()
        self._place = self._new_place(directory)
        self._segments: list[Segment] = []
        try:
            for number in range(2):
                self._segments.append(Segment(self._place / str(number)))
            for each in (self._place, directory, directory.parent):
                put_on_disk(each)
        except BaseException:
            with self._stack:
                self._let_go()
                _remove(self._place)
            raise
        self._latest = 0
        # Where files of the segment in use, the first one, lie, and what became of those of the other one.
        self._directories: set[str] = set()
        self._settling: Future[None] = Future()
        self._settling.set_result(None)

    def append(self, files: Sequence[File]) -> bool:
        """Record files; they are certain when this returns. False if there is no room for them now."""
        record = record_of(files, self._base)
        if not self._segments[0].has_room(record) and not self._swap():
            return False
        self._latest = max(self._latest + 1, time.time_ns())
        self._segments[0].append(record, self._latest)
        self._directories.update([directory_of(file.name) for file in files])
        return True

    def close(self) -> None:
        with self._stack:
            try:
                self._settling.result()
                _settle(self._directories)
            finally:
                self._let_go()
            _remove(self._place)

    def _swap(self) -> bool:
        """Go on in the other segment, if nothing depends on it any more.

        If the disk could not be given what that one tells of, both stay as they are for whoever recovers them.
        """
        if not self._settling.done() or self._settling.exception() is not None:
            return False
        settling: Future[None] = Future()
        work = (settling, self._directories)
        try:
            threading.Thread(target=_settle_into, args=work, name="ratchet-journal").start()
        except RuntimeError:  # no thread can be had
            _settle_into(*work)
        self._settling, self._directories = settling, set()
        self._segments.reverse()
        self._segments[0].begin()
        return True

    def _let_go(self) -> None:
        for segment in self._segments:
            segment.close()

    def _new_place(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            place = directory / f"{os.getpid()}-{secrets.token_hex(4)}"
            place.mkdir()
            try:
                is_ours = self._stack.enter_context(_held(place))
            except OSError:
                place.rmdir()
                raise
            # Whoever looks for what dead processes left may have been quicker, and has removed it.
            if is_ours:
                return place


@contextlib.contextmanager
def _held(place: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a directory inside the block; false if it is gone, or if somebody else holds it and is not waited for."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield place.exists()
    finally:
        os.close(descriptor)


def _settle(directories: set[str]) -> None:
    """Wait for the file systems in which these directories lie."""
    settled: set[int] = set()
    for each in directories:
        with contextlib.suppress(FileNotFoundError):  # somebody has removed it, with all that was in it
            device = os.stat(each).st_dev  # noqa: PTH116 - as in `disk`
            if device not in settled:
                settle_everything(each)
                settled.add(device)


def _settle_into(settling: Future[None], directories: set[str]) -> None:
    try:
        _settle(directories)
    except BaseException as error:  # noqa: BLE001 - told to whoever needs the segment
        settling.set_exception(error)
    else:
        settling.set_result(None)


def _recover(places: Sequence[Path], base: str) -> None:
    files = [each for place in places for segment in place.iterdir() for each in recorded(segment)]
    # What was recorded last of a name is what it stands for, whoever it was.
    last = {each.path: each for each in sorted(files, key=lambda each: each.at)}
    directories = set()
    for each in last.values():
        file = Path(base) / each.path
        # Where even the directory above is gone, somebody has removed all of it since.
        if file.parent.parent.exists():
            if not _stands(file, each):
                _write_again(file, Path(base) / each.temporary, each)
            directories.add(str(file.parent))
    _settle(directories)
    for place in places:
        _remove(place)


def _stands(file: Path, each: Recorded) -> bool:
    """Whether a file has what was recorded, or what somebody has written since."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return False
    if content == each.content:
        return True
    whole = len(content) == len(each.content) and b"\0" not in content
    return each.changes and whole and file.stat().st_mtime_ns > each.at


def _write_again(file: Path, temporary: Path, each: Recorded) -> None:
    # What was left of it when it was written for the first time, or the last.
    temporary.unlink(missing_ok=True)
    File(str(file), str(temporary), each.content, each.mode, _make_directory).write_and_wait()


def _make_directory(directory: Path) -> None:
    directory.mkdir(exist_ok=True)


def _is_readable(place: Path) -> bool:
    return os.access(place, os.W_OK) and all(os.access(each, os.R_OK) for each in place.iterdir())


def _remove(place: Path) -> None:
    for segment in place.iterdir():
        segment.unlink()
    place.rmdir()
