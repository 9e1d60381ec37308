"""What the processes of this machine have of descriptors, memory, disk and inotify, and what is used up."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MOST_DESCRIPTORS = 65_536
# Below these, what is left is not enough to work with: SQLite, for one, must be able to write its journal.
_LEAST_DISK_BYTES = 16 * 1024 * 1024
_LEAST_MEMORY_BYTES = 64 * 1024 * 1024
_FULL_SHARE = 0.95
# So many descriptors are looked at for what they are: who asks may be a stranger.
_LOOKED_AT = 4096
_PAGE_BYTES = resource.getpagesize()
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_INOTIFY = Path("/proc/sys/fs/inotify")


def allow_descriptors() -> None:
    """Have as many descriptors as this process may, within reason: children may go through all that are possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Those of one process that are open, how many may be, and how many of them are inotify instances."""

    open: int
    limit: int
    inotify: int = 0

    @property
    def used_up(self) -> bool:
        return self.open > self.limit * _FULL_SHARE


def descriptors_of(pid: int) -> Descriptors | None:
    """Nothing for a process that is gone, or of another user."""
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except OSError:
        return None
    limit = _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return None
    except OSError:
        # It takes a descriptor to look: there is none.
        return Descriptors(limit, limit)
    return Descriptors(len(links), limit, sum(map(_is_inotify, links[:_LOOKED_AT])))


def resident_bytes(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return None


def memory_available_bytes() -> int | None:
    """What this machine can still give out without swapping."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        _, _, found = Path("/proc/meminfo").read_text().partition("MemAvailable:")
        return int(found.split()[0]) * 1024
    return None


def memory_bytes() -> int | None:
    """What this machine has."""
    with contextlib.suppress(OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    return None


def gpus() -> tuple[str, ...]:
    """The models of NVIDIA's cards, as their driver names them. Others are not looked for."""
    found = []
    for file in sorted(_NVIDIA.glob("*/information")):
        with contextlib.suppress(OSError):
            _, _, model = file.read_text().partition("Model:")
            found.append(model.partition("\n")[0].strip() or "unknown")
    return tuple(found)


def disk_free_bytes(directory: Path) -> int:
    """As far as this user may fill it; none where no more files can be made."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return 0
    return 0 if disk.f_files > 0 and disk.f_favail == 0 else disk.f_bavail * disk.f_frsize


def inotify_limit(what: str) -> int | None:
    """How many `instances` or `watches` a user may have."""
    with contextlib.suppress(OSError, ValueError):
        return int((_INOTIFY / f"max_user_{what}").read_text())
    return None


def shortages(home: Path, pids: Iterable[int] = ()) -> Iterator[str]:
    """What is used up for this process, or for the processes with these numbers."""
    if disk_free_bytes(home) < _LEAST_DISK_BYTES:
        yield "the disk is full"
    if any(found is not None and found.used_up for found in map(descriptors_of, {os.getpid(), *pids})):
        yield "the open files of a process are used up"
    memory = memory_available_bytes()
    if memory is not None and memory < _LEAST_MEMORY_BYTES:
        yield "the memory of the machine is used up"


def _is_inotify(link: Path) -> bool:
    try:
        return str(link.readlink()) == "anon_inode:inotify"
    except OSError:
        return False
