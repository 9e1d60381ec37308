"""The warm parents of this process, started when first needed and again when they died.

Used from any thread and any event loop: an order is one message, and what becomes of it comes back over a line of its
own.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ratchet.sandbox.exchange import close_all, socket_pair
from ratchet.sandbox.inside.warm import COMMAND, NODES
from ratchet.sandbox.plan import package_directories, python_directories
from ratchet.sandbox.result import Broken

_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.warm import main; main()"
# Too many messages or descriptors are on their way: not a reason to give up.
_CROWDED = {errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS}
_PATIENCE_SECONDS, _PAUSE_SECONDS, _LEAVING_SECONDS = 30.0, 0.002, 1.0


class Parent:
    """Our end of the socket on which a parent takes orders."""

    def __init__(self, orders: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._orders = orders
        self._process = process
        self._words = ""
        orders.setblocking(False)

    def send(self, order: bytes, descriptors: Sequence[int]) -> None:
        """Raises `OSError`; one that is not in `_CROWDED` means that the parent is dead."""
        socket.send_fds(self._orders, [order], list(descriptors))

    def last_words(self) -> str:
        """Why it could not start, if it said so."""
        # The first try may only be told that the other end is gone, with the words still waiting behind that.
        for _ in range(2):
            with contextlib.suppress(OSError):
                self._words += self._orders.recv(4096).decode(errors="replace")
        return self._words

    def close(self) -> None:
        self._orders.close()
        if self._process is None:
            return
        try:
            self._process.wait(_LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class NodeKind(NamedTuple):
    """What the nodes of one parent have in common."""

    layers: tuple[str, ...]
    modules: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...] = ()


class Nursery:
    """All parents: one for commands, and for each kind of nodes one per core."""

    def __init__(self) -> None:
        # Protects what follows: a parent that died is replaced once, not by everyone who noticed.
        self._lock = threading.RLock()
        self._commands: Parent | None = None
        self._nodes: dict[NodeKind, list[Parent]] = {}
        self._turns = itertools.count()

    async def start_command(self, descriptors: Sequence[int]) -> None:
        """The descriptors are its description, stdin, stdout, stderr and line."""
        await self._send(self._command_parent, COMMAND, descriptors)

    async def start_node(self, order: bytes, descriptors: Sequence[int], kind: NodeKind) -> Parent:
        """The descriptors are its work, stdout, stderr and line. Returns the parent that was given the order."""
        return await self._send(lambda dead: self._node_parent(kind, dead), order, descriptors)

    def close(self) -> None:
        """End every parent, and all that they run. The next order starts new ones."""
        with self._lock:
            for parent in itertools.chain(*self._nodes.values()):
                parent.close()
            if self._commands is not None:
                self._commands.close()
            self._nodes.clear()
            self._commands = None

    async def _send(
        self, parent_for: Callable[[Parent | None], Parent], order: bytes, descriptors: Sequence[int]
    ) -> Parent:
        dead: Parent | None = None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            parent = parent_for(dead)
            try:
                parent.send(order, descriptors)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Broken(f"the sandbox takes no orders: {error.strerror}") from error
                dead = None if error.errno in _CROWDED else parent
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return parent

    def _command_parent(self, dead: Parent | None) -> Parent:
        with self._lock:
            if self._commands is not None and self._commands is dead:
                self._commands.close()
                self._commands = None
            if self._commands is None:
                self._commands = _start()
            return self._commands

    def _node_parent(self, kind: NodeKind, dead: Parent | None) -> Parent:
        with self._lock:
            parents = self._nodes.setdefault(kind, [])
            if dead in parents:
                dead.close()
                parents.remove(dead)
            if len(parents) < len(os.sched_getaffinity(0)):
                parents.append(self._start_nodes(kind))
                return parents[-1]
            return parents[next(self._turns) % len(parents)]

    def _start_nodes(self, kind: NodeKind) -> Parent:
        settings = {"python": python_directories(), "path": package_directories(), **kind._asdict()}
        ours, theirs = socket_pair(socket.SOCK_SEQPACKET)
        with theirs, held_file(json.dumps(settings).encode()) as description:
            parent = self._command_parent(None)
            try:
                parent.send(NODES, [description, theirs.fileno()])
            except OSError:
                self._command_parent(parent).send(NODES, [description, theirs.fileno()])
        return Parent(ours)


def _start() -> Parent:
    ours, theirs = socket_pair(socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parent), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd="/",
            # What is in its environment, every run could read in the memory that it inherits. This tells nothing: the
            # linker looks up all functions at once, or else each fork would look up those that it is first to call.
            env={"LD_BIND_NOW": "1"},
            # Ctrl-C in a terminal goes to a whole group. A command that it ended would seem to have failed by itself.
            start_new_session=True,
        )
    return Parent(ours, process)


@contextlib.contextmanager
def held_file(content: bytes) -> Iterator[int]:
    """A file in memory that has no name; whoever is given the descriptor reads it from the start."""
    descriptor = os.memfd_create("ratchet", os.MFD_CLOEXEC)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


_nursery = Nursery()
# Kept, because a process that is forgotten while it runs is warned of.
_abandoned: list[Nursery] = []


def nursery() -> Nursery:
    """The one of this process."""
    return _nursery


def close() -> None:
    """End every helper process of the sandbox, and all that they run. The next run starts new ones."""
    _nursery.close()


def _forget() -> None:
    """A fork of this process has no part in what it runs, and must not keep the lines open that end it."""
    global _nursery
    close_all()
    _abandoned.append(_nursery)
    _nursery = Nursery()


atexit.register(close)
os.register_at_fork(after_in_child=_forget)
