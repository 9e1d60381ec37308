"""Slots: who may measure now, and on which CPUs or GPUs.

A named slot is a file that the measuring process locks, so no two processes on this machine have it at once, and
the kernel frees it when its holder dies. Within one process they are given out first come, first served.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from ratchet.kernel import Misuse
from ratchet.research.adapter import Slots

# A slot that another process lets go is noticed this late. Only the first in the line looks.
_LOOK_SECONDS = 0.05
_MOST_CPUS = 8192
_locked: set[int] = set()
_lines: dict[tuple[Path, Slots], SlotQueue] = {}
# Two meters of one process must stand in the same line.
_lines_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot while it is held. `cpus` are empty where it may run anywhere."""

    name: str = ""
    cpus: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    release: Callable[[], None] = field(default=lambda: None, compare=False)


Take = Callable[[], Lease | None]


class SlotPool:
    """Gives out the slots of a task. `directory` is where the files of named ones are."""

    def __init__(self, slots: Slots, directory: Path) -> None:
        """Raises `Misuse` for a slot that this machine cannot have."""
        if slots.kind not in ("cpu", "gpu"):
            raise Misuse(f"a slot cannot be a {slots.kind!r}", hint="use cpu or gpu")
        key = (directory.absolute(), slots)
        with _lines_lock:
            if key not in _lines:
                _lines[key] = SlotQueue(_named(slots, key[0]) if slots.names else _counted(slots.count))
            self._line = _lines[key]

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Lease]:
        """Hold a slot inside the block; waits for one."""
        lease = await self._line.wait()
        try:
            yield lease
        finally:
            lease.release()
            self._line.call()


class SlotQueue:
    """Those of this process who wait, in any thread and event loop. `take` hands over a slot if one is free."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._waiting: deque[_Place] = deque()
        # The first of the line is the only one who takes: the others must not overtake it.
        self._lock = threading.Lock()

    async def wait(self) -> Lease:
        with self._lock:
            lease = None if self._waiting else self._take()
            if lease is not None:
                return lease
            place = _Place(asyncio.get_running_loop())
            self._waiting.append(place)
        try:
            while (lease := self._try(place)) is None:
                await place.called(None if self._waiting[0] is not place else _LOOK_SECONDS)
        finally:
            with self._lock:
                self._waiting.remove(place)
            self.call()
        return lease

    def call(self) -> None:
        """Tell the first in the line that a slot may be free."""
        with self._lock:
            if self._waiting:
                self._waiting[0].call()

    def _try(self, place: _Place) -> Lease | None:
        with self._lock:
            return self._take() if self._waiting[0] is place else None


class _Place:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def call(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended, and it is about to leave the line
            self._loop.call_soon_threadsafe(self._event.set)

    async def called(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


def _counted(count: int | None) -> Take:
    """Slots without names, of this process alone: as many as there are CPUs unless the task says how many."""
    free = deque(range(count or len(os.sched_getaffinity(0))))

    def take() -> Lease | None:
        if not free:
            return None
        number = free.popleft()
        return Lease(release=lambda: free.append(number))

    return take


def _named(slots: Slots, directory: Path) -> Take:
    """Slots that are files in `directory`, which are locked while they are held and stay when they are not."""
    leases = {
        directory / f"{slots.kind}-{quote(name, safe='')}": _lease(slots.kind, name) for name in slots.names
    }
    directory.mkdir(parents=True, exist_ok=True)

    def take() -> Lease | None:
        for path, lease in leases.items():
            descriptor = _locked_file(path)
            if descriptor is not None:
                return replace(lease, release=partial(_let_go, descriptor))
        return None

    return take


def _locked_file(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    _locked.add(descriptor)
    return descriptor


def _let_go(descriptor: int) -> None:
    if descriptor in _locked:
        _locked.remove(descriptor)
        os.close(descriptor)


def _lease(kind: str, name: str) -> Lease:
    if kind == "gpu":
        return Lease(name, environment={"CUDA_VISIBLE_DEVICES": name})
    cpus = _cpus(name)
    missing = cpus - os.sched_getaffinity(0)
    if missing:
        raise Misuse(
            f"the slot {name!r} names CPUs that this process may not run on: {_listed(missing)}",
            hint=f"it may run on {_listed(os.sched_getaffinity(0))}",
        )
    return Lease(name, cpus=tuple(sorted(cpus)))


def _cpus(name: str) -> set[int]:
    """The CPUs in a list as Linux writes it, such as `0,2` or `4-7`."""
    found: set[int] = set()
    for part in name.split(","):
        first, _, last = part.partition("-")
        ends = (first, last or first)
        if not all(each.isascii() and each.isdecimal() and int(each) < _MOST_CPUS for each in ends):
            raise Misuse(
                f"a slot for CPUs cannot be called {name!r}", hint="name the CPUs, such as 0 or 0,1 or 4-7"
            )
        found |= set(range(int(first), int(last or first) + 1))
    if not found:
        raise Misuse(f"the slot {name!r} names no CPU", hint="name the CPUs, such as 0 or 0,1 or 4-7")
    return found


def _listed(cpus: set[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))


def _forget() -> None:
    """A fork of this process has no slot, and must not keep those of its parent when that dies."""
    while _locked:
        os.close(_locked.pop())


os.register_at_fork(after_in_child=_forget)
