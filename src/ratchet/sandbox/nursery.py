"""The warm parents of this process, and one run as this process sees it: descriptors, pipes, output, end.

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
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.kernel import decoded
from ratchet.sandbox.inside import rlimits
from ratchet.sandbox.inside.warm import COMMAND, NODES
from ratchet.sandbox.policy import Broken, Stopped, Warm, package_directories, python_directories, scope

_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_DESCRIPTOR_PATIENCE_SECONDS, _DESCRIPTOR_PAUSE_SECONDS = 30.0, 0.01

# Ends that only this process may hold: their closing is how the other side knows that it died.
_ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def socket_pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """Our end and theirs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    _ours.add(ours)
    return ours, theirs


def close_all() -> None:
    for each in list(_ours):
        each.close()


class Wiring:
    """A line over which the run is ended and reported, and pipes for its output and, if wanted, its input."""

    def __init__(self, *, with_input: bool) -> None:
        self._open: list[int] = []
        self._given: list[int] = []
        self.line, self._their_line = socket_pair(socket.SOCK_STREAM)
        try:
            given_input = [self._pipe(ours=1)] if with_input else []
            self.stdout, self.stderr = self._pipe(ours=0), self._pipe(ours=0)
            self.stdin = given_input[0] if given_input else None
        except OSError:
            self.close()
            raise

    @property
    def theirs(self) -> list[int]:
        """What the run gets: stdin if there is one, stdout, stderr, line."""
        return [*self._given, self._their_line.fileno()]

    def let_go(self) -> None:
        """Close what was given away, or is no longer to be."""
        self._their_line.close()
        while self._given:
            os.close(self._given.pop())

    def close(self) -> None:
        """Close everything, when there will be no run."""
        self.let_go()
        self.line.close()
        while self._open:
            os.close(self._open.pop())

    def _pipe(self, *, ours: int) -> int:
        ends = os.pipe2(os.O_CLOEXEC)
        self._open.append(ends[ours])
        self._given.append(ends[1 - ours])
        return ends[ours]


async def new_wiring(*, with_input: bool) -> Wiring:
    """Wiring for a run; waits while this process has as many descriptors open as it may."""
    deadline = time.monotonic() + _DESCRIPTOR_PATIENCE_SECONDS
    while True:
        try:
            return Wiring(with_input=with_input)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS or time.monotonic() > deadline:
                raise Broken(
                    f"no descriptors for another run: {error.strerror}",
                    hint="run fewer at once, or raise `ulimit -n`",
                ) from error
        await asyncio.sleep(_DESCRIPTOR_PAUSE_SECONDS)


# As much as a pipe holds, so nobody writes faster than about 6 MiB a second to one that is drained.
_CHUNK = 64 * 1024
_DRAIN_PAUSE_SECONDS = 0.01


class Output:
    """What a run writes, read no further than its bound: as it comes from when `listen` was called, or at the end.

    Each piece is handed to `overhear`, if it is wanted before the end; after that `changed` is called. If `overhear`
    returns something to wait for, nothing more is read until then, and `paused` is called with whether that is so.
    """

    def __init__(
        self,
        descriptor: int,
        most_bytes: int,
        changed: Callable[[], None],
        overhear: Callable[[bytes], Awaitable[None] | None] | None = None,
        paused: Callable[[bool], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._most_bytes = most_bytes
        self._total = 0
        self._changed = changed
        self._overhear = overhear
        self._paused = paused
        self._listening = False
        self.held = bytearray()
        os.set_blocking(descriptor, False)

    def listen(self) -> None:
        if self._descriptor is not None:
            self._listening = True
            self._loop.add_reader(self._descriptor, self._read)

    @property
    def over(self) -> bool:
        """Whether more came than the bound allows."""
        return self._total > self._most_bytes

    def finish(self) -> None:
        """Read what is still in the pipe, once nobody is left who writes to it."""
        while self._descriptor is not None and self._read():
            pass
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            if self._listening:
                self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> bool:
        """Take one piece. Whether the next may be there already."""
        assert self._descriptor is not None
        try:
            piece = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        kept = piece[: max(0, self._most_bytes - self._total)]
        self.held += kept
        self._total += len(piece)
        wait = self._overhear(kept) if kept and self._overhear is not None else None
        if not piece or self.over:
            self.close()
        elif wait is not None and self._listening:
            self._pause(wait)
        self._changed()
        return bool(piece)

    def _pause(self, wait: Awaitable[None]) -> None:
        assert self._descriptor is not None
        self._loop.remove_reader(self._descriptor)
        self._listening = False

        def go_on(_: asyncio.Future[None]) -> None:
            if self._paused is not None:
                self._paused(False)
            self.listen()

        if self._paused is not None:
            self._paused(True)
        asyncio.ensure_future(wait).add_done_callback(go_on)


class Drain:
    """What a run writes, handed to `hear` as it comes and held by nobody here, however much it is.

    It is read with a pause after each piece: a flood makes the run wait, not this process.
    """

    def __init__(self, descriptor: int, hear: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._hear = hear
        self._pause: asyncio.TimerHandle | None = None
        self.held = bytearray()
        self.over = False
        os.set_blocking(descriptor, False)

    def listen(self) -> None:
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._read)

    def finish(self) -> None:
        """Hand on what is still in the pipe, once nobody is left who writes to it."""
        while self._take():
            pass
        self.close()

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> None:
        assert self._descriptor is not None
        self._loop.remove_reader(self._descriptor)
        if self._take() == b"":
            self.close()
        else:
            self._pause = self._loop.call_later(_DRAIN_PAUSE_SECONDS, self.listen)

    def _take(self) -> bytes | None:
        """Hand on one piece; empty at the end of the pipe, `None` if nothing is there now."""
        if self._descriptor is None:
            return None
        try:
            piece = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return None
        if piece:
            self._hear(piece)
        return piece


class Input:
    """Feeds a run its stdin as fast as it reads. A run need not read all of it."""

    def __init__(self, descriptor: int, content: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._rest = memoryview(content)
        os.set_blocking(descriptor, False)
        self._loop.add_writer(descriptor, self._write)
        self._write()

    def close(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self) -> None:
        if self._descriptor is None:
            return
        with contextlib.suppress(BrokenPipeError):
            while self._rest:
                try:
                    self._rest = self._rest[os.write(self._descriptor, self._rest) :]
                except BlockingIOError:
                    return
        self.close()


class Overhearing(NamedTuple):
    """What is only told each piece that a run writes, as it comes."""

    stderr: Callable[[bytes], None] | None = None
    stdout: Callable[[bytes], Awaitable[None] | None] | None = None
    """May return what is to be waited for before more is read."""


_MOST_REPORT_BYTES = 64 * 1024
_DRAIN_SECONDS = 5.0


class SandboxExchange:
    """Belongs to the event loop in which it was made. `ended` is set once nothing of the run is left.

    Output is listened to after `patience_seconds`. A run that ends before is read in one go at its end, which costs far
    less; one that writes more than a pipe holds waits that long, once. With `seconds` the time is kept here and not by
    the sandbox, and what a run waits for the reader of its stdout does not count.
    """

    def __init__(
        self,
        wiring: Wiring,
        stdin: bytes,
        *,
        most_bytes: int,
        hear: Callable[[bytes], None] | None = None,
        overhearing: Overhearing = Overhearing(),  # noqa: B008  it cannot be changed
        patience_seconds: float = 0.0,
        seconds: float | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = wiring.line
        self._said = b""
        self._told: dict[str, Any] | None = None
        self._late = False
        self.stopped: Stopped | None = None
        self.on_change: Callable[[], None] | None = None
        self.ended = asyncio.Event()
        self.stdout: Output | Drain
        self.stderr: Output | Drain
        if hear is None:
            self.stdout = Output(
                wiring.stdout, most_bytes, self._changed, overhearing.stdout, self._set_paused
            )
            self.stderr = Output(wiring.stderr, most_bytes, self._changed, overhearing.stderr)
        else:
            self.stdout, self.stderr = Drain(wiring.stdout, hear), Drain(wiring.stderr, hear)
        self._input = None if wiring.stdin is None else Input(wiring.stdin, stdin)
        self._left = seconds
        self._since = 0.0
        self._clock: asyncio.TimerHandle | None = None
        self._set_paused(False)
        self._line.setblocking(False)
        self._loop.add_reader(self._line.fileno(), self._hear)
        self._patience = self._loop.call_later(patience_seconds, self._listen) if patience_seconds else None
        if self._patience is None:
            self._listen()

    async def report(self, seconds: float) -> dict[str, Any] | None:
        """What the sandbox said at the end, `None` if it died without a word. Raises `Broken` if it is late."""
        timer = self._loop.call_later(seconds, self._give_up)
        try:
            await self.ended.wait()
        finally:
            timer.cancel()
        if self._late:
            raise Broken(f"the sandbox did not end a run within {seconds:g} s")
        return self._told

    async def leave(self) -> None:
        """End the run if it has not ended, and wait until it is gone, also while this task is being cancelled."""
        if self.ended.is_set():
            return
        self.stop(Stopped.CANCELLED)
        try:
            await self.report(_DRAIN_SECONDS)
        except Broken:
            return  # the line is closed; more cannot be done
        finally:
            self.close()

    def stop(self, reason: Stopped) -> None:
        """End the run; `ended` follows. The first reason stands."""
        if self.stopped is None and not self.ended.is_set():
            self.stopped = reason
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go of everything; a run that has not ended is ended by that."""
        if self._line.fileno() >= 0:
            self._loop.remove_reader(self._line.fileno())
            self._line.close()
        for timer in (self._patience, self._clock):
            if timer is not None:
                timer.cancel()
        if self._input is not None:
            self._input.close()
        self.stdout.close()
        self.stderr.close()
        self.ended.set()
        if self.on_change is not None:
            self.on_change()

    def _give_up(self) -> None:
        self._late = not self.ended.is_set()
        self.close()

    def _set_paused(self, paused: bool) -> None:
        if self._left is None or self.ended.is_set():
            return
        if self._clock is not None:
            self._clock.cancel()
            self._left -= self._loop.time() - self._since
            self._clock = None
        if not paused:
            self._since = self._loop.time()
            self._clock = self._loop.call_later(self._left, self.stop, Stopped.WALL)

    def _listen(self) -> None:
        self.stdout.listen()
        self.stderr.listen()

    def _changed(self) -> None:
        if self.stdout.over or self.stderr.over:
            self.stop(Stopped.OUTPUT)
        if self.on_change is not None:
            self.on_change()

    def _hear(self) -> None:
        try:
            piece = self._line.recv(_MOST_REPORT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self._said += piece
        if piece and not piece.endswith(b"\n"):
            return
        # Every process of the run is dead, so what the pipes hold now is all there will be.
        self.stdout.finish()
        self.stderr.finish()
        with contextlib.suppress(ValueError):  # half a report is none
            self._told = json.loads(self._said)
        self.close()


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
                self._words += decoded(self._orders.recv(4096))
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


class CommandKind(NamedTuple):
    """What the commands of one parent have in common: the modules that it has loaded."""

    path: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    prepare: str = ""


_BARE = CommandKind()


class Nursery:
    """All parents: one for each kind of commands, and for each kind of nodes one per core."""

    def __init__(self) -> None:
        # Protects what follows: a parent that died is replaced once, not by everyone who noticed.
        self._lock = threading.RLock()
        self._commands: dict[CommandKind, Parent] = {}
        self._nodes: dict[NodeKind, list[Parent]] = {}
        self._turns = itertools.count()

    async def start_command(self, descriptors: Sequence[int], warm: Warm | None = None) -> None:
        """The descriptors are its description, stdin, stdout, stderr and line."""
        kind = _kind_of(warm)
        await self._send(lambda dead: self._command_parent(dead, kind), COMMAND, descriptors)

    def warm_up(self, warm: Warm) -> None:
        """Have the parent load its modules before the first command asks for it."""
        self._command_parent(None, _kind_of(warm))

    async def start_node(self, order: bytes, descriptors: Sequence[int], kind: NodeKind) -> Parent:
        """The descriptors are its work, stdout, stderr and line. Returns the parent that was given the order."""
        return await self._send(lambda dead: self._node_parent(kind, dead), order, descriptors)

    def close(self) -> None:
        """End every parent, and all that they run. The next order starts new ones."""
        with self._lock:
            for parent in itertools.chain(*self._nodes.values(), self._commands.values()):
                parent.close()
            self._nodes.clear()
            self._commands.clear()

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

    def _command_parent(self, dead: Parent | None, kind: CommandKind = _BARE) -> Parent:
        with self._lock:
            parent = self._commands.get(kind)
            if parent is not None and parent is dead:
                words = parent.last_words()
                parent.close()
                if words:
                    del self._commands[kind]
                    raise Broken(f"the parent of commands could not start: {words}")
                parent = None
            if parent is None:
                # Should systemd end what it had started, it is not asked again.
                parent = self._commands[kind] = _start(kind, [] if dead is not None else scope())
            return parent

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


def _kind_of(warm: Warm | None) -> CommandKind:
    return _BARE if warm is None else CommandKind(warm.path, warm.modules, warm.prepare)


def _start(kind: CommandKind, outer: Sequence[str]) -> Parent:
    rlimits.keep_room()
    here = str(Path(__file__).parent)
    loaded = [] if kind is _BARE else [json.dumps(kind._asdict())]
    ours, theirs = socket_pair(socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [*outer, sys.executable, "-I", "-S", "-c", _START, here, *loaded, str(theirs.fileno())],
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
