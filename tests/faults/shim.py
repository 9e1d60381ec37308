"""The library that records what a process does to its disk, and makes calls fail: built, loaded and read (`shim.c`)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("shim.c")
RECORD_BYTES = 256 * 1024 * 1024
_HEAD = struct.Struct("=IBBHQQ")
_COMPILERS = ("cc", "gcc", "clang")


class Call(IntEnum):
    """What may be made to fail."""

    OPEN = 0
    WRITE = 1
    SYNC = 2
    RENAME = 3
    UNLINK = 4
    MKDIR = 5
    SPAWN = 6
    THREAD = 7
    PIPE = 8
    NOTE = 9


class Place(IntEnum):
    """Where. Elsewhere is outside of the home, and what belongs to no file."""

    LEDGER = 0
    OBJECTS = 1
    REFS = 2
    ARTIFACTS = 3
    OTHER = 4
    ELSEWHERE = 5


class Action(IntEnum):
    """What happens then. `cut` is a power cut; `tear` writes a half and kills; `jump` sets the wall clock."""

    FAIL = 1
    SHORT = 2
    KILL = 3
    CUT = 4
    TEAR = 5
    STOP = 6
    JUMP = 7


class Op(IntEnum):
    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    SYNC_DIRECTORY = 5
    SYNC_ALL = 6
    RENAME = 7
    UNLINK = 8
    MKDIR = 9
    LINK = 10
    SYMLINK = 11
    NOTE = 12
    FAULT = 13


class Entry(NamedTuple):
    """One line of the record. `inode` of a note is the process; `flags` of an opened file say that it was emptied."""

    op: Op
    place: int
    flags: int
    inode: int
    offset: int
    data: bytes

    @property
    def path(self) -> str:
        return os.path.normpath(os.fsdecode(self.data[: self.offset or None]))

    @property
    def second(self) -> str:
        """The new name of a link or of what was renamed."""
        return os.path.normpath(os.fsdecode(self.data[self.offset :]))


def compiler() -> str | None:
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


@functools.cache
def library() -> Path:
    """The built library, made once for each version of its source."""
    program = compiler()
    if program is None:
        raise FileNotFoundError("no C compiler: install one, such as the package gcc with libc6-dev")
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"ratchet-faults-{os.getuid()}-{name}.so"
    if not built.exists():
        made = built.with_suffix(f".{os.getpid()}")
        command = [program, "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True, capture_output=True)
        made.rename(built)
    return built


class Shim:
    """The library in this process, with the file of one seed. The process must have been started with it."""

    def __init__(self, file: Path, root: Path) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_log.restype = ctypes.c_void_p
        for name in ("faults_used", "faults_calls"):
            getattr(self._library, name).restype = ctypes.c_uint64
        self._library.faults_clock.restype = ctypes.c_int64
        self._library.faults_make(
            os.fsencode(file), os.fsencode(root.resolve()), ctypes.c_uint64(RECORD_BYTES)
        )

    def enter(self) -> None:
        """Be under the faults from now on, with every process that is started from here."""
        self._library.faults_enter()

    def add(
        self, calls: int, places: int, first: int, last: int, action: Action, error: int, jump_ns: int
    ) -> None:
        self._library.faults_add(calls, places, first, last, int(action), error, ctypes.c_int64(jump_ns))

    def clear(self) -> None:
        self._library.faults_clear()

    def forget(self) -> None:
        """Begin a new record: the power was cut, and what it told of is history."""
        self._library.faults_forget()

    def release(self) -> None:
        """Let the thread continue that has stopped its process."""
        self._library.faults_release()

    def fired(self, number: int) -> int:
        return int(self._library.faults_fired(number))

    def calls(self, call: Call, place: Place) -> int:
        """How often it was made in all."""
        return int(self._library.faults_calls(int(call), int(place)))

    @property
    def dead(self) -> bool:
        """Whether the power was cut."""
        return bool(self._library.faults_dead())

    @property
    def clock_ns(self) -> int:
        return int(self._library.faults_clock())

    @clock_ns.setter
    def clock_ns(self, value: int) -> None:
        self._library.faults_set_clock(ctypes.c_int64(value))

    def note(self, text: str) -> None:
        content = text.encode()
        self._library.faults_note(content, ctypes.c_size_t(len(content)))

    def entries(self) -> Iterator[Entry]:
        record = ctypes.string_at(self._library.faults_log(), self._library.faults_used())
        at = 0
        while at < len(record):
            size, op, place, flags, inode, offset = _HEAD.unpack_from(record, at)
            yield Entry(Op(op), place, flags, inode, offset, record[at + _HEAD.size : at + size])
            at += size
