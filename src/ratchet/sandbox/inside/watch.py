"""Watching what a whole process tree uses, for which the kernel has no limit of its own."""

# pathlib is slow to import.
# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import contextlib
import os
import resource

_TICKS = os.sysconf("SC_CLK_TCK")
_TRUSTED_LOOKS = 3


class TreeWatch:
    """Looks through /proc at every process but this one. `peak_bytes` is the most memory seen at once."""

    def __init__(
        self, *, memory_bytes: int | None, processes: int, cpu_seconds: float | None, scratch: tuple[str, ...]
    ) -> None:
        self._memory_bytes = memory_bytes
        self._processes = processes
        self._cpu_seconds = cpu_seconds
        self._scratch = scratch
        self._trusted_looks = 0
        self.peak_bytes = 0

    def look(self, pids: list[int]) -> str | None:
        """The bound that these processes have passed, if any."""
        if len(pids) > self._processes:
            return "processes"
        if self._passed_memory(pids):
            return "memory"
        if self._cpu_seconds is not None and _cpu_seconds(pids) > self._cpu_seconds:
            return "cpu"
        return None

    def _passed_memory(self, pids: list[int]) -> bool:
        scratch = self._scratch_bytes()
        used = scratch + sum(map(_own_bytes, pids))
        if self._memory_bytes is None or used <= self._memory_bytes:
            self.peak_bytes = max(self.peak_bytes, used)
            return False
        if self._trusted_looks:
            self._trusted_looks -= 1
            return False
        # Counting exactly takes long, so one that is right is trusted for a few looks.
        used = scratch + sum(map(_proportional_bytes, pids))
        self._trusted_looks = _TRUSTED_LOOKS
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._memory_bytes

    def _scratch_bytes(self) -> int:
        """What lies in directories that are kept in memory."""
        total = 0
        for path in self._scratch:
            with contextlib.suppress(OSError):
                told = os.statvfs(path)
                total += (told.f_blocks - told.f_bfree) * told.f_frsize
        return total


def everyone() -> list[int]:
    """The processes of this pid namespace but the first, which is ours."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def descendants(pid: int) -> list[int]:
    """The processes below `pid`, where there is no pid namespace that holds them together."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        try:
            children = _read(f"/proc/{waiting[0]}/task/{waiting.pop(0)}/children").split()
        except OSError:
            continue
        found += map(int, children)
        waiting += map(int, children)
    return found


def _own_bytes(pid: int) -> int:
    """What it has in memory beside the files of its program. Pages that forks share count for each of them."""
    return _sum(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:")) or 0


def _proportional_bytes(pid: int) -> int:
    """The same with shared pages divided among those who share them."""
    exact = _sum(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))
    return _own_bytes(pid) if exact is None else exact


def _sum(path: str, kinds: tuple[str, ...]) -> int | None:
    try:
        return sum(int(line.split()[1]) * 1024 for line in _read(path).splitlines() if line.startswith(kinds))
    except OSError:
        return None


def _cpu_seconds(pids: list[int]) -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(map(_ticks, pids)) / _TICKS


def _ticks(pid: int) -> int:
    """Of a process and those of its children that it has waited for."""
    try:
        return sum(map(int, _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15]))
    except (OSError, ValueError):
        return 0


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
