"""Watching what a whole process tree uses, for which the kernel has no limit of its own."""

# pathlib is slow to import.
# ruff: noqa: PTH112, PTH116, PTH208
from __future__ import annotations

import contextlib
import os
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from .cgroup import RunGroup
from .kernel_memory import THREAD_BYTES, KernelWatch, in_sockets, read
from .linux import machine, system_call

_TICKS = os.sysconf("SC_CLK_TCK")
_TRUSTED_LOOKS = 3
# What the kernel needs for a name in a directory in memory, and for a message or a semaphore.
_NAME_BYTES, _ITEM_BYTES = 1024, 64
_PAGES = {"RssAnon:": 1024, "RssShmem:": 1024}
_OF_THE_KERNEL = {"VmPTE:": 1024, "Threads:": THREAD_BYTES}
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_COUNTER_BYTES, _COUNTER_CLOEXEC = 112, 8
_STIR_BYTES = 4 * 1024 * 1024
_EARLIEST_TIMES, _LATEST_TIMES, _WALK_SECONDS = 20, 100, 30.0


def count_cpu(pid: int) -> int | None:
    """A descriptor of a counter of the nanoseconds that `pid` and all that it starts from now on are running. `None`
    where the kernel does not let this user count."""
    # A clock of the task, by software, inherited by its children, in user mode: any other needs rights.
    attributes = struct.pack("IIQQQQQ", 1, _COUNTER_BYTES, 1, 0, 0, 0, 0b1100010).ljust(_COUNTER_BYTES, b"\0")
    number = _PERF_EVENT_OPEN.get(machine, -1)
    counter = system_call(number, attributes, pid, -1, -1, _COUNTER_CLOEXEC)
    return counter if counter >= 0 else None


class TreeWatch:
    """Looks through /proc at every process but this one. `peak_bytes` is the most memory seen at once."""

    def __init__(
        self,
        *,
        memory_bytes: int | None,
        processes: int,
        cpu_seconds: float | None,
        scratch: tuple[str, ...],
        shared: bool,
        sockets: bool = False,
        counter: int | None = None,
        group: RunGroup | None = None,
    ) -> None:
        """`scratch` are directories in memory. `shared`: what the kernel keeps for sharing is this tree's alone; so are
        `sockets`. `counter` is a descriptor from `count_cpu`; `group` is the cgroup of all of them."""
        self._memory_bytes = memory_bytes
        self._processes = processes
        self._cpu_seconds = cpu_seconds
        self._scratch = scratch
        self._shared = shared
        self._sockets = sockets
        self._socket_bytes = 0
        self._next_sockets = 0.0
        self._kernel = KernelWatch(memory_bytes, sockets=sockets)
        self._counter = counter
        self._group = group
        self._trusted_looks = 0
        self._own_ticks: dict[tuple[int, str], int] = {}
        self._ended_ticks = 0
        self._seen: tuple[int, int] = (0, 0)
        self.peak_bytes = 0
        self.is_quiet = False
        """Whether the last look found as many processes, with about as much memory, as the one before."""

    def look(self, pids: list[int]) -> str | None:
        """The bound that these processes have passed, if any."""
        if len(pids) > self._processes:
            return "processes"
        if self._passed_memory(pids) or self._kernel.passed:
            return "memory"
        if self._group is not None and self._group.out_of_memory:
            return "memory"
        if self._cpu_seconds is not None and self._used_seconds(pids) > self._cpu_seconds:
            return "cpu"
        return None

    @property
    def seen_seconds(self) -> float:
        """The CPU time of every process, also of those that no process waited for: as the kernel counts it, or else as
        it was when last looked at."""
        seen = (self._ended_ticks + sum(self._own_ticks.values())) / _TICKS
        if self._group is not None:
            return max(seen, self._group.cpu_seconds)
        if self._counter is None:
            return seen
        return max(seen, int.from_bytes(os.read(self._counter, 8), sys.byteorder) / 1e9)

    def _used_seconds(self, pids: list[int]) -> float:
        """The CPU time of the tree, by the kernel's sum or by ours: in the first those are missing whose parent had the
        kernel forget them, in the second what a process used since the last look."""
        living: dict[tuple[int, str], int] = {}
        waited_for = 0
        for pid in pids:
            if (used := _ticks(pid)) is not None:
                living[pid, used.start] = used.own
                waited_for += used.own + used.of_children
        self._ended_ticks += sum(ticks for each, ticks in self._own_ticks.items() if each not in living)
        self._own_ticks = living
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return max(ended.ru_utime + ended.ru_stime + waited_for / _TICKS, self.seen_seconds)

    def _passed_memory(self, pids: list[int]) -> bool:
        beside = self._scratch_bytes() + (_system_v_bytes() if self._shared else 0)
        if self._sockets:
            beside += self._queued_bytes()
        beside += self._kernel.look(pids)
        used = beside + sum(map(_own_bytes, pids))
        count, before = self._seen
        self.is_quiet = count == len(pids) and abs(used - before) <= _STIR_BYTES
        self._seen = len(pids), used
        if self._memory_bytes is None or used <= self._memory_bytes:
            self.peak_bytes = max(self.peak_bytes, used)
            return False
        if self._trusted_looks:
            self._trusted_looks -= 1
            return False
        # Counting exactly takes long, so one that is right is trusted for a few looks.
        used = beside + sum(map(_proportional_bytes, pids))
        self._trusted_looks = _TRUSTED_LOOKS
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._memory_bytes

    def _queued_bytes(self) -> int:
        """What is on its way in sockets; looking takes long, so what was seen last counts for a while."""
        began = time.monotonic()
        if began >= self._next_sockets:
            with contextlib.suppress(OSError, ValueError, struct.error):
                self._socket_bytes = in_sockets()
            ended = time.monotonic()
            self._next_sockets = ended + _EARLIEST_TIMES * (ended - began)
        return self._socket_bytes

    def _scratch_bytes(self) -> int:
        """What lies in directories that are kept in memory."""
        total = 0
        for path in self._scratch:
            with contextlib.suppress(OSError):
                told = os.statvfs(path)
                total += (told.f_blocks - told.f_bfree) * told.f_frsize
                total += (told.f_files - told.f_ffree) * _NAME_BYTES
        return total


class DiskWatch:
    """Watches how much is written into directories in all, for which the kernel has no limit of its own.

    Looking through them takes long, so that is done when their file systems have lost as much space as may be used,
    else seldom, and never again before many times what it took have passed.
    """

    def __init__(self, directories: Iterable[str], most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # The clock of file systems ticks slowly.
        self._since = time.time() - 0.1
        self._directories = [path for path in directories if os.path.isdir(path)]
        self._free = {os.stat(path).st_dev: (path, _free_bytes(path)) for path in self._directories}
        self._earliest_walk = 0.0
        self._latest_walk = time.monotonic() + _WALK_SECONDS

    def look(self) -> str | None:
        """The bound, if it is passed."""
        lost = sum(max(0, free - _free_bytes(path)) for path, free in self._free.values())
        began = time.monotonic()
        if began < (self._earliest_walk if lost > self._most_bytes else self._latest_walk):
            return None
        written = sum(map(self._written, self._directories))
        ended = time.monotonic()
        self._earliest_walk = ended + _EARLIEST_TIMES * (ended - began)
        # Space that others free may hide what this tree has taken.
        self._latest_walk = ended + max(_WALK_SECONDS, _LATEST_TIMES * (ended - began))
        return "disk" if written > self._most_bytes else None

    def _written(self, top: str) -> int:
        """The sizes of all files below that were changed since the start. What cannot be looked at is too much."""
        hidden: list[OSError] = []
        total = 0
        for each in files_below(top, hidden.append):
            try:
                found = each.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if found.st_ctime >= self._since:
                total += found.st_blocks * 512
        return self._most_bytes + 1 if hidden else total


def files_below(top: str, trouble: Callable[[OSError], object]) -> Iterator[os.DirEntry[str]]:
    """All but directories, without following a link. `trouble` is called with what keeps one from being listed."""
    waiting = [top]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for each in found:
                    if each.is_dir(follow_symlinks=False):
                        waiting.append(each.path)
                    else:
                        yield each
        except FileNotFoundError:
            continue
        except OSError as error:
            trouble(error)


def _free_bytes(path: str) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_bfree * found.f_frsize


def everyone() -> list[int]:
    """The processes of this pid namespace but the first, which is ours."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def descendants(pid: int) -> list[int]:
    """The processes below `pid`, where there is no pid namespace that holds them together."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        try:
            children = read(f"/proc/{waiting[0]}/task/{waiting.pop(0)}/children").split()
        except OSError:
            continue
        found += map(int, children)
        waiting += map(int, children)
    return found


def _own_bytes(pid: int) -> int:
    """What it has in memory beside the files of its program, with the tables of its pages and the stacks of its threads
    in the kernel. Pages that forks share count for each of them."""
    return _sum(f"/proc/{pid}/status", _PAGES | _OF_THE_KERNEL) or 0


def _proportional_bytes(pid: int) -> int:
    """The same with shared pages divided among those who share them."""
    exact = _sum(f"/proc/{pid}/smaps_rollup", {"Pss_Anon:": 1024, "Pss_Shmem:": 1024})
    if exact is None:
        return _own_bytes(pid)
    return exact + (_sum(f"/proc/{pid}/status", _OF_THE_KERNEL) or 0)


def _sum(path: str, bytes_of: Mapping[str, int]) -> int | None:
    try:
        lines = map(str.split, read(path).splitlines())
        return sum(bytes_of[words[0]] * int(words[1]) for words in lines if words and words[0] in bytes_of)
    except OSError:
        return None


class _Ticks(NamedTuple):
    """What a process has used, and those of its children that it has waited for."""

    own: int
    of_children: int
    start: str


def _ticks(pid: int) -> _Ticks | None:
    try:
        words = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        user, system, users, systems = map(int, words[11:15])
        return _Ticks(user + system, users + systems, words[19])
    except (OSError, ValueError, IndexError):
        return None


def _system_v_bytes() -> int:
    """Shared memory, messages and semaphores that the kernel keeps whether or not a process uses them."""
    total = 0
    for kind in ("shm", "msg", "sem"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in read(f"/proc/sysvipc/{kind}").splitlines()[1:]:
                words = line.split()
                if kind == "shm":
                    total += int(words[14]) + int(words[15])
                elif kind == "msg":
                    total += int(words[3]) + int(words[4]) * _ITEM_BYTES
                else:
                    total += int(words[3]) * _ITEM_BYTES
    return total
