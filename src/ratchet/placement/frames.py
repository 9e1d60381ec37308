"""What a process and its broker say to each other over pipes. Both are of one Ratchet, so that values are pickled.

A broker is told `content`, `drop`, `place`, `cancel` and `nodes`, each with a number or a hash and what belongs to it.
It answers with the number of an attempt, a piece of news or a reply, and the node.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import IO, Any, NamedTuple

from ratchet.placement.node import NodeReply
from ratchet.placement.work import NodeNeeds

_LENGTH = struct.Struct(">Q")


class Placed(NamedTuple):
    """An assignment as the broker hands it on: packed, and who is not to get it."""

    packed: bytes
    name: str
    needs: NodeNeeds
    contents: tuple[str, ...]
    version: str
    unfit: Mapping[str, str]
    streams: bool = False


class NodeRow(NamedTuple):
    """A node of the cluster, as the cluster describes it. `free` is what of its resources nothing uses now."""

    id: str
    name: str
    resources: Mapping[str, float]
    labels: Mapping[str, str]
    free: Mapping[str, float] = {}

    def has_room(self, needs: NodeNeeds) -> bool:
        """Whether it could do it if it did nothing else."""
        wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory_bytes or 0}
        if any(self.resources.get(name, 0) < amount for name, amount in wanted.items()):
            return False
        return all(self.labels.get(name) == value for name, value in needs.labels.items())


def packed_frame(*frame: Any) -> bytes:
    packed = pickle.dumps(frame)
    return _LENGTH.pack(len(packed)) + packed


def send(file: IO[bytes], *frame: Any) -> None:
    file.write(packed_frame(*frame))
    file.flush()


def receive(file: IO[bytes]) -> Any:
    """The next frame; `None` at the end."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    packed = file.read(length)
    return pickle.loads(packed) if len(packed) == length else None


async def receive_async(stream: asyncio.StreamReader) -> Any:
    """The next frame; `None` at the end."""
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        return pickle.loads(await stream.readexactly(length))
    except asyncio.IncompleteReadError:
        return None


Answer = Callable[[int, bytes | NodeReply, str], None]


class Broker:
    """What a broker does with frames. A subclass runs one attempt; cancelling that must end it."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._running: dict[int, asyncio.Task[None]] = {}

    def content(self, sha256: str, content: bytes) -> None:
        raise NotImplementedError

    def drop(self, sha256: str) -> None:
        raise NotImplementedError

    def nodes(self) -> list[NodeRow]:
        raise NotImplementedError

    async def run(self, number: int, placed: Placed) -> None:
        raise NotImplementedError

    def handle(self, word: str, *said: Any) -> None:
        match word:
            case "content":
                self.content(*said)
            case "drop":
                self.drop(*said)
            case "nodes":
                self.answer(said[0], NodeReply("done", pickle.dumps(self.nodes())), "")
            case "place":
                number, placed = said
                task = asyncio.ensure_future(self._run(number, placed))
                self._running[number] = task
                task.add_done_callback(lambda _: self._running.pop(number, None))
            case "cancel":
                task_found = self._running.get(said[0])
                if task_found is not None:
                    task_found.cancel()

    async def _run(self, number: int, placed: Placed) -> None:
        unfit = placed.unfit
        # Without one that was refused it may wait for a node that is still to come.
        if unfit and not any(each.id not in unfit and each.has_room(placed.needs) for each in self.nodes()):
            self.answer(number, NodeReply("none", reason="; ".join(sorted(set(unfit.values())))), "")
            return
        try:
            await self.run(number, placed)
        except Exception as error:  # noqa: BLE001 - one attempt is lost, the broker lives on
            first = next(filter(None, str(error).splitlines()), "")
            self.answer(number, NodeReply("lost", reason=f"{type(error).__name__}: {first}"), "")


def serve(make: Callable[[Answer], Broker], begin: Callable[[], object] = lambda: None) -> None:
    """Be a broker over stdin and stdout until the other side is gone. What others print goes to stderr."""
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    begin()

    def answer(number: int, piece: bytes | NodeReply, node: str) -> None:
        send(outgoing, number, piece, node)

    async def work() -> None:
        broker, loop, over = make(answer), asyncio.get_running_loop(), asyncio.Event()

        def read() -> None:
            while (frame := receive(incoming)) is not None:
                loop.call_soon_threadsafe(broker.handle, *frame)
            loop.call_soon_threadsafe(over.set)

        threading.Thread(target=read, daemon=True).start()
        await over.wait()

    _run_and_leave(work())


def _run_and_leave(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except BrokenPipeError:
        # The other side died while it was answered.
        os._exit(1)
