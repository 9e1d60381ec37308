"""Slots: who may measure now, on which CPUs or GPUs, and by which device nodes.

A named slot is a file that the measuring process locks, so no two processes on this machine have it at once, and
the kernel frees it when its holder dies. Within one process they are given out first come, first served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from ratchet.files import try_lock
from ratchet.kernel import Missing, Misuse
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
    """A slot while it is held. `cpus` are empty where it may run anywhere.

    `devices` are the nodes of its GPUs, and `readable` is what their libraries read; `problem` says why it has none.
    """

    name: str = ""
    cpus: tuple[int, ...] = ()
    devices: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    problem: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    release: Callable[[], None] = field(default=lambda: None, compare=False)

    def check(self) -> None:
        """Raise `Missing` when it has no GPU, or has lost one."""
        problem = self.problem or next(filter(None, map(_gone, self.devices)), "")
        if problem:
            raise Missing(
                f"the slot {self.name} has no device: {problem}", hint="`ratchet research check` looks at it"
            )

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Raises `Missing` when a device of it is gone, before or after, whatever was found out meanwhile."""
        self.check()
        try:
            yield
        except Exception:
            self.check()
            raise
        self.check()


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
        self._slots = slots

    def check(self) -> None:
        """Raise `Misuse` when a GPU that a slot names is not there."""
        for name in self._slots.names if self._slots.kind == "gpu" else ():
            try:
                _lease(self._slots, name).check()
            except Missing as missing:
                raise Misuse(str(missing), hint="name GPUs of this machine in slots.names") from None

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
    leases = {directory / f"{slots.kind}-{quote(name, safe='')}": _lease(slots, name) for name in slots.names}
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
    if try_lock(descriptor):
        _locked.add(descriptor)
        return descriptor
    os.close(descriptor)
    return None


def _let_go(descriptor: int) -> None:
    if descriptor in _locked:
        _locked.remove(descriptor)
        os.close(descriptor)


def _lease(slots: Slots, name: str) -> Lease:
    if slots.kind == "gpu":
        nodes = dict(slots.devices).get(name)
        if nodes is not None:
            return Lease(name, devices=tuple(map(Path, nodes)), environment={"CUDA_VISIBLE_DEVICES": name})
        return gpus(name)
    cpus = _cpus(name)
    missing = cpus - os.sched_getaffinity(0)
    if missing:
        raise Misuse(
            f"the slot {name!r} names CPUs that this process may not run on: {_listed(missing)}",
            hint=f"it may run on {_listed(os.sched_getaffinity(0))}",
        )
    return Lease(name, cpus=tuple(sorted(cpus)))


_NVIDIA_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
# The number of the first node by which programs reach a GPU of this kind.
_FIRST_RENDER = 128


def gpus(
    name: str, *, machine: Path = Path("/dev"), driver: Path = Path("/proc/driver/nvidia/gpus")
) -> Lease:
    """The slot of these GPUs, by number or UUID and separated by commas. `machine` has nodes, `driver` describes GPUs.

    Inside, GPUs are counted from 0 again, since it sees no others: programs find them by UUID where those are known.
    """
    wanted = name.split(",")
    if (machine / "nvidiactl").exists():
        known = _nvidia(driver)
        numbers = [known.get(each, each) for each in wanted]
        named = {number: uuid for uuid, number in known.items()}
        shared = [path for each in _NVIDIA_SHARED if (path := machine / each).exists()]
        visible = ",".join(named.get(each, each) for each in numbers)
        return Lease(
            name,
            devices=(*(machine / f"nvidia{each}" for each in numbers), *shared),
            readable=(Path("/sys"),),
            environment={"CUDA_VISIBLE_DEVICES": visible},
        )
    if (machine / "kfd").exists() and all(each.isdecimal() for each in wanted):
        nodes = [machine / "dri" / f"renderD{_FIRST_RENDER + int(each)}" for each in wanted]
        visible = ",".join(str(place) for place in range(len(nodes)))
        return Lease(
            name,
            devices=(*nodes, machine / "kfd"),
            readable=(Path("/sys"),),
            environment={"ROCR_VISIBLE_DEVICES": visible, "HIP_VISIBLE_DEVICES": visible},
        )
    return Lease(
        name,
        problem=f"this machine has no GPU {name}: neither {machine}/nvidiactl nor {machine}/kfd is there",
        environment={"CUDA_VISIBLE_DEVICES": name},
    )


def _nvidia(driver: Path) -> dict[str, str]:
    """The number of the node of each GPU, by its UUID."""
    found: dict[str, str] = {}
    for each in sorted(driver.glob("*/information")):
        with contextlib.suppress(OSError):
            told = dict(line.partition(":")[::2] for line in each.read_text().splitlines())
            found[told.get("GPU UUID", "").strip()] = told.get("Device Minor", "").strip()
    return found


def _gone(device: Path) -> str:
    try:
        mode = device.stat().st_mode
    except OSError as error:
        return f"{device}: {error.strerror}"
    return "" if stat.S_ISCHR(mode) else f"{device} is no device node"


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
