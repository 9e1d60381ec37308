"""A piece of work, and what may be done with it wherever it is done: place it, watch it, cancel it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ratchet.kernel import PlacementChoice, RatchetError

T = TypeVar("T")


class WorkLost(RatchetError):
    """Nothing is known of the work: its node died, or was cut off. It may be placed again."""


class ClusterAway(WorkLost):
    """The cluster was reached before and cannot be reached now, as when its head is started again."""


class NodeRefused(WorkLost):
    """A node cannot do it, and is not asked for work of this kind again: another may."""


class WorkFailed(RatchetError):
    """It could not be done where it was placed, and would not be done elsewhere either."""


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """What a node must have free. `gpu_type` and `labels` are as the cluster calls them.

    `wall_seconds` is when the node gives up by itself: the last resort behind the limits of the sandbox.
    """

    cpus: float = 1.0
    memory_bytes: int | None = None
    gpus: int = 0
    gpu_type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    wall_seconds: float | None = None


def chosen_needs(choice: PlacementChoice, usual: NodeNeeds) -> NodeNeeds:
    """What a task or a tool says that it needs, and what is usual where it says nothing."""
    return NodeNeeds(
        cpus=usual.cpus if choice.cpus is None else choice.cpus,
        memory_bytes=usual.memory_bytes if choice.memory_mb is None else choice.memory_mb * 1024 * 1024,
        gpus=usual.gpus if choice.gpus is None else choice.gpus,
        gpu_type=choice.gpu_type or usual.gpu_type,
        labels={**usual.labels, **choice.labels},
        wall_seconds=usual.wall_seconds if choice.wall_seconds is None else choice.wall_seconds,
    )


@dataclass(frozen=True, slots=True)
class Order:
    """The work as a node is told of it.

    `function` is `module:name` of an async function, which is called with `given` and a `NodeContext`. `contents` are
    what it reads by their hashes; a node keeps them for the next time. A node that found itself unfit for a `kind` of
    work is not asked for that again. `given` and what is returned are pickled.
    """

    function: str
    given: Any
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class PlacedWork(Generic[T]):
    """Something to be done once, `here` in this process or as `there` says. `hear` gets what it reports meanwhile."""

    name: str
    here: Callable[[], Awaitable[T]]
    there: Callable[[], Order]
    needs: NodeNeeds = field(default_factory=NodeNeeds)
    hear: Callable[[bytes], None] | None = None


@dataclass(frozen=True)
class Ticket(Generic[T]):
    """One attempt at a piece of work. Its number is given to no other attempt of this process."""

    work: PlacedWork[T]
    number: int = 0


@dataclass(frozen=True, slots=True)
class WorkNews:
    data: bytes


@dataclass(frozen=True)
class WorkDone(Generic[T]):
    value: T


class Placement(Protocol):
    async def place(self, work: PlacedWork[T]) -> Ticket[T]:
        """Begin an attempt. Raises `WorkLost` where none can begin now, and `Missing` where none ever can."""
        ...

    def watch(self, ticket: Ticket[T]) -> AsyncIterator[WorkNews | WorkDone[T]]:
        """What it reports, and its end. Raises `WorkLost`, `WorkFailed`, and what the work itself raises here."""
        ...

    async def cancel(self, ticket: Ticket[T]) -> None:
        """See that it runs no more, and that nothing of it arrives any more."""
        ...


class Local:
    """Here. Who watches does the work, so that it costs nothing and is cancelled with them."""

    async def place(self, work: PlacedWork[T]) -> Ticket[T]:
        return Ticket(work)

    async def watch(self, ticket: Ticket[T]) -> AsyncIterator[WorkNews | WorkDone[T]]:
        yield WorkDone(await ticket.work.here())

    async def cancel(self, ticket: Ticket[T]) -> None:
        """It ended with its watcher."""


LOCAL = Local()
_MOST_LOST = 8
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_AWAY_SECONDS = 300.0


async def carry_out(placement: Placement, work: PlacedWork[T], *, most_lost: int = _MOST_LOST) -> T:
    """Place work and watch it to its end; place it again when it was lost, up to `most_lost` times.

    A cluster that goes away for some minutes is waited for. There is one attempt at a time, and only the answer of the
    last is taken. Raises as `Placement.watch` does.
    """
    pause = _PAUSE_SECONDS
    lost = 0
    back_by: float | None = None
    while True:
        try:
            return await _attempted(placement, work)
        except NodeRefused:
            continue
        except ClusterAway:
            back_by = time.monotonic() + _AWAY_SECONDS if back_by is None else back_by
            if most_lost == 1 or time.monotonic() > back_by:
                raise
        except WorkLost:
            lost += 1
            if lost == most_lost:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


async def _attempted(placement: Placement, work: PlacedWork[T]) -> T:
    ticket = await placement.place(work)
    try:
        async with aclosing(placement.watch(ticket)) as news:  # type: ignore[type-var]
            async for each in news:
                if isinstance(each, WorkDone):
                    return each.value
                if work.hear is not None:
                    work.hear(each.data)
    finally:
        await placement.cancel(ticket)
    raise WorkLost(f"nothing was heard of {work.name} any more")


def content_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
