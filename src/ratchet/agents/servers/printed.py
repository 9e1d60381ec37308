"""What a server prints: its end in memory, for messages, and more of it in a file of bounded size."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ratchet.agents.contract import LOGS, Role

MOST_BYTES = 1024 * 1024
"""Of one file; the one before it is kept as well."""
_TAIL_BYTES = 16 * 1024
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW


class Printed:
    """Takes what a server prints. Trouble with the file never reaches the server: then only the end is kept.

    The directory belongs to the agent, which may put links and worse there, so nothing is opened through a link.
    """

    def __init__(self, directory: Path, role: Role) -> None:
        self._name = f"{role}.out"
        self._tail = bytearray()
        self._folder: int | None = None
        self._file: int | None = None
        self._size = 0
        with contextlib.suppress(OSError):
            self._folder = _open_folder(directory)
            self._open()

    @property
    def tail(self) -> str:
        return self._tail.decode("utf-8", "replace")

    def take(self, piece: bytes) -> None:
        self._tail += piece
        del self._tail[:-_TAIL_BYTES]
        try:
            self._keep(piece)
        except OSError:
            self._close_file()

    def close(self) -> None:
        self._close_file()
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def _keep(self, piece: bytes) -> None:
        if self._file is None:
            return
        if self._size + len(piece) > MOST_BYTES:
            self._close_file()
            os.replace(self._name, f"{self._name}.1", src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._open()
        self._size += os.write(self._file, piece)

    def _open(self) -> None:
        flags = _OPEN | os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        self._file = os.open(self._name, flags, 0o644, dir_fd=self._folder)
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            self._close_file()
        self._size = found.st_size

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _open_folder(directory: Path) -> int:
    """The directory of logs, which is made if it is missing."""
    top = os.open(directory, _OPEN | os.O_DIRECTORY)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(LOGS, dir_fd=top)
        return os.open(LOGS, _OPEN | os.O_DIRECTORY, dir_fd=top)
    finally:
        os.close(top)
