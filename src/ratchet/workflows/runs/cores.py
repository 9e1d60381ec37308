"""How many steps run at once: as many as there are cores, not counting those that only wait."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

_PROC = Path("/proc")
# A step that starts is busy for a moment; one that is seen to wait in so many looks in a row waits.
_LOOKS = 3
_LOOK_SECONDS = 0.02
_STATE, _PARENT, _THREADS = 0, 1, 17
"""Where they stand in /proc/PID/stat, behind the name."""


class Cores(asyncio.Semaphore):
    """Lets `cores` in at once, and one more for each that is inside and waits, up to `most`.

    Whether those inside compute is looked at only while others queue: `computing` counts the processes below this one
    that run or would like to. Where that cannot be known, no more than `cores` are let in.
    """

    def __init__(self, cores: int, most: int, computing: Callable[[], int | None] | None = None) -> None:
        super().__init__(cores)
        self._cores = cores
        self._most = most
        self._computing = computing or computing_below
        self._beyond = 0
        self._inside = 0
        self._queued = 0
        self._watch: asyncio.Task[None] | None = None

    async def acquire(self) -> Literal[True]:
        self._queued += 1
        if self.locked() and self._most > self._cores and (self._watch is None or self._watch.done()):
            self._watch = asyncio.create_task(self._look())
        try:
            await super().acquire()
        finally:
            self._queued -= 1
        self._inside += 1
        return True

    def release(self) -> None:
        self._inside -= 1
        if self._beyond:
            # Its place was one more than there are cores.
            self._beyond -= 1
        else:
            super().release()

    async def _look(self) -> None:
        """Let others in while few of those inside compute: more each time, as long as nothing changes."""
        looks, more = 0, 1
        while self._queued:
            await asyncio.sleep(_LOOK_SECONDS)
            busy = await asyncio.to_thread(self._computing)
            if busy is None:
                return
            looks = looks + 1 if busy < self._cores else 0
            if looks == 0:
                more = 1
            if looks < _LOOKS:
                continue
            for _ in range(min(more, self._queued, self._most - self._inside)):
                self._beyond += 1
                super().release()
            looks, more = 0, more * 2


def computing_below() -> int | None:
    """How many processes below this one run or wait for a core; `None` where that cannot be known."""
    try:
        found = {int(each.name): each for each in _PROC.iterdir() if each.name.isdigit()}
    except OSError:
        return None
    stats = {number: stat for number, path in found.items() if (stat := _stat(path)) is not None}
    below, known = {os.getpid()}, -1
    while known != len(below):
        known = len(below)
        below |= {number for number, stat in stats.items() if int(stat[_PARENT]) in below}
    return sum(_computes(found[number], stats[number]) for number in below - {os.getpid()} if number in stats)


def _computes(path: Path, stat: list[str]) -> bool:
    if stat[_STATE] == "R" or int(stat[_THREADS]) == 1:
        return stat[_STATE] == "R"
    return any(each[_STATE] == "R" for each in _threads(path))


def _threads(path: Path) -> Iterator[list[str]]:
    try:
        threads = list((path / "task").iterdir())
    except OSError:
        return
    for each in threads:
        if (stat := _stat(each)) is not None:
            yield stat


def _stat(path: Path) -> list[str] | None:
    """The words of its line behind the name, which may hold anything."""
    try:
        return (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
