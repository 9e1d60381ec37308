"""Who lives on this machine, as /proc tells it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_NAME_LENGTH = 15


def marked(marker: str) -> list[int]:
    """The processes that carry `marker` in their name, their arguments or their environment. The dead do not count."""
    short = marker.encode()[:_NAME_LENGTH]
    return [
        pid
        for pid in _pids()
        if _read(pid, "comm").strip() == short
        or marker.encode() in _read(pid, "cmdline") + _read(pid, "environ")
        if not _is_dead(pid)
    ]


def below(ancestor: int) -> list[int]:
    """The children of a process, their children and so on."""
    parents = {pid: _parent(pid) for pid in _pids()}
    found, wanted = [], {ancestor}
    while wanted:
        wanted = {pid for pid, parent in parents.items() if parent in wanted}
        found += sorted(wanted)
    return found


def above(pid: int, ancestor: int) -> list[int]:
    """The parent of a process, its parent and so on, up to the child of `ancestor`."""
    found = []
    while (pid := _parent(pid)) not in (0, 1, ancestor):
        found.append(pid)
    return found


def kill(pid: int) -> None:
    """End a process for certain. One that has ended meanwhile is no mistake."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _pids() -> Iterator[int]:
    return (
        int(each.name) for each in _PROC.iterdir() if each.name.isdigit() and int(each.name) != os.getpid()
    )


def _read(pid: int, what: str) -> bytes:
    try:
        return (_PROC / str(pid) / what).read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return b""


def _fields(pid: int) -> list[bytes]:
    """State, parent and so on: what stands behind the name, which may itself hold anything."""
    return _read(pid, "stat").rpartition(b") ")[2].split()


def _is_dead(pid: int) -> bool:
    return _fields(pid)[:1] in ([], [b"Z"], [b"X"])


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if len(fields) > 1 else 0
