"""The broker of a cluster that is none: its nodes are processes of this machine, each doing one thing at a time.

For trying out what placing work does, and for tests. What happens to work is what happens with Ray: it travels by hash,
a node that dies is lost with what it did, and another takes its place. Run as
`python -P -m ratchet.placement.processes COUNT`, and for a node `… node NAME`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import queue
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from typing import cast

import ratchet
from ratchet.placement.frames import (
    Answer,
    Broker,
    NodeRow,
    Placed,
    packed_frame,
    receive,
    receive_async,
    send,
    serve,
)
from ratchet.placement.node import NodeReply, answers

_ALIVE_SECONDS, _SILENT_SECONDS = 5.0, 30.0


class ProcessBroker(Broker):
    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._contents: dict[str, bytes] = {}
        self._names = (f"process-{number}" for number in itertools.count(1))
        self._idle: list[_NodeProcess] = []
        self._known: dict[str, _NodeProcess] = {}
        self._waiting: list[asyncio.Future[None]] = []
        for _ in range(int(sys.argv[1])):
            self._add()

    def content(self, sha256: str, content: bytes) -> None:
        self._contents[sha256] = content

    def drop(self, sha256: str) -> None:
        self._contents.pop(sha256, None)

    def nodes(self) -> list[NodeRow]:
        has = {"CPU": 1.0, "memory": math.inf}
        return [
            NodeRow(name, name, has, {"ray.io/node-id": name}, {**has, "CPU": float(node in self._idle)})
            for name, node in self._known.items()
        ]

    async def run(self, number: int, placed: Placed) -> None:
        contents = {sha256: self._contents[sha256] for sha256 in placed.contents}
        node = await self._taken(placed)
        ended = False
        try:
            async for piece in node.answers(placed, contents):
                ended = isinstance(piece, NodeReply)
                self.answer(number, piece, node.name)
            if not ended:
                self.answer(number, NodeReply("lost", reason=f"{node.name} died"), node.name)
        finally:
            if not ended:
                node.kill()
                del self._known[node.name]
                node = self._add()
            else:
                self._idle.append(node)
            self._waiting, waiting = [], self._waiting
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    def _add(self) -> _NodeProcess:
        node = _NodeProcess(next(self._names))
        self._known[node.name] = node
        self._idle.append(node)
        return node

    async def _taken(self, placed: Placed) -> _NodeProcess:
        wanted = placed.needs.labels.get("ray.io/node-id")
        while True:
            for node in self._idle:
                if node.name not in placed.unfit and wanted in (None, node.name):
                    self._idle.remove(node)
                    return node
            freed = asyncio.get_running_loop().create_future()
            self._waiting.append(freed)
            await freed


class _NodeProcess:
    """Started when it gets its first work."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Process | None = None

    async def answers(
        self, placed: Placed, contents: Mapping[str, bytes]
    ) -> AsyncIterator[bytes | NodeReply]:
        """News and the reply. It ends without a reply when the process dies."""
        if self._process is None:
            command = (sys.executable, "-P", "-m", "ratchet.placement.processes", "node", self.name)
            self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        stdin = cast(asyncio.StreamWriter, self._process.stdin)
        stdout = cast(asyncio.StreamReader, self._process.stdout)
        # One that says nothing for so long is frozen or cut off, as Ray finds of its nodes.
        with contextlib.suppress(OSError, TimeoutError):
            stdin.write(packed_frame(placed.version, placed.packed, contents))
            await stdin.drain()
            while (frame := await asyncio.wait_for(receive_async(stdout), _SILENT_SECONDS)) is not None:
                if frame[0] is None:
                    continue
                yield frame[0]
                if isinstance(frame[0], NodeReply):
                    return

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def _node(name: str) -> None:
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    frames: queue.SimpleQueue[tuple[str, bytes, dict[str, bytes]]] = queue.SimpleQueue()

    def read() -> None:
        while (frame := receive(incoming)) is not None:
            frames.put(frame)
        # The broker is gone, whatever is being done here.
        os._exit(1)

    # Frames of two threads must not mix.
    speaking = threading.Lock()

    def say(piece: bytes | NodeReply | None) -> None:
        with speaking:
            send(outgoing, piece)

    def live() -> None:
        while True:
            time.sleep(_ALIVE_SECONDS)
            say(None)

    threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=live, daemon=True).start()
    while True:
        version, packed, contents = frames.get()
        if ratchet.__version__ != version:
            reason = f"node {name} has Ratchet {ratchet.__version__}, not {version}"
            say(NodeReply("unfit", reason=reason))
            continue
        for piece in answers(packed, contents.__getitem__, ()):
            say(piece)


def main() -> None:
    if sys.argv[1] == "node":
        _node(sys.argv[2])
    else:
        serve(ProcessBroker)


if __name__ == "__main__":
    main()
