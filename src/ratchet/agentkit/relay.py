"""How Ratchet starts a server, and how one without a network is reached and reaches others, over sockets.

The half of the relay inside the sandbox, and the server, are forks of a parent that has the kit loaded.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TO_SERVER, TO_RATCHET, TO_OTHERS = "server.sock", "ratchet.sock", "others.sock"
ADDRESS = "127.0.0.1"
_PIECE = 64 * 1024
_BACKLOG = 1024


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """`folder` by a path that is short however long its own is: that of a socket may have a hundred letters."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


class Relay:
    """Takes connections, and connects each to what `reach` opens. One that leads nowhere is closed."""

    def __init__(self, reach: Callable[[], Awaitable[Streams]]) -> None:
        self._reach = reach
        self._open: set[asyncio.StreamWriter] = set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            far_reader, far_writer = await self._reach()
        except OSError:
            _reset(writer)
            self._end(writer)
            return
        self._open.add(far_writer)
        try:
            await carry_both_ways((reader, writer), (far_reader, far_writer))
        finally:
            self._end(writer)
            self._end(far_writer)

    def close(self) -> None:
        """Break every connection off."""
        for writer in list(self._open):
            writer.transport.abort()

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Let the caller know that no one has read anything, so that it may try again, as a closed port would."""
    bound = writer.get_extra_info("socket")
    if bound.family == socket.AF_INET:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def carry_both_ways(one: Streams, other: Streams) -> None:
    """Bring what comes from each to the other, until both have ended."""
    await asyncio.gather(_copy(one[0], other[1]), _copy(other[0], one[1]))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
        target.write_eof()
    except OSError:
        # One side broke off: so does the other, which ends the copying the other way as well.
        target.transport.abort()


def start_alone(argv: Sequence[str]) -> None:
    """Be a server that has the network: its program, and what follows it on the command line."""
    _become(argv)


class _Ways(NamedTuple):
    """The listening sockets of a server's own network, and the process that serves them until the server does."""

    inward: socket.socket
    outward: Mapping[str, socket.socket]
    folder: int
    relay: int


_ways: _Ways | None = None


def start_beside_relay(argv: Sequence[str]) -> None:
    """Start the half of the relay beside the server, then be the server.

    Arguments: the directory of the sockets, the server's port, Ratchet's, that of the way to others, and the server's
    command.
    """
    global _ways
    folder, port, ratchet_port, others_port, *command = argv
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    inward = socket.socket(socket.AF_UNIX)
    inward.bind(f"/proc/self/fd/{place}/{TO_SERVER}")
    inward.listen(_BACKLOG)
    outward = {TO_RATCHET: _listening(int(ratchet_port)), TO_OTHERS: _listening(int(others_port))}
    hear, tell = os.pipe()
    # A grandchild, so that the server has no child that it did not start.
    child = os.fork()
    if child == 0:
        if (relay := os.fork()) == 0:
            os.close(tell)
            os.close(hear)
            os.chdir("/")
            asyncio.run(_carry(inward, outward, place, int(port)))
        os.write(tell, str(relay).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(tell)
    with os.fdopen(hear) as file:
        _ways = _Ways(inward, outward, place, int(file.read()))
    _become(command)


def take_over() -> tuple[socket.socket, ...]:
    """Serve what the relay beside this server served, which costs a process less; the socket on which calls come."""
    global _ways
    if _ways is None:
        return ()
    ways, _ways = _ways, None
    os.kill(ways.relay, signal.SIGKILL)
    # A thread of its own: a tool may hold up the loop of the server while it waits for who is reached by these.
    threading.Thread(target=_carry_outward, args=(ways,), daemon=True).start()
    return (ways.inward,)


def _carry_outward(ways: _Ways) -> None:
    waiting = select.poll()
    for listener in ways.outward.values():
        waiting.register(listener, select.POLLIN)
    # Most servers reach for nobody, and a loop takes memory.
    waiting.poll()
    asyncio.run(_carry(None, ways.outward, ways.folder, 0))


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.bind((ADDRESS, port))
    listener.listen(_BACKLOG)
    return listener


async def _carry(
    inward: socket.socket | None, outward: Mapping[str, socket.socket], folder: int, port: int
) -> None:
    servers = []
    if inward is not None:
        to_server = Relay(lambda: asyncio.open_connection(ADDRESS, port))
        servers.append(await asyncio.start_unix_server(to_server.take, sock=inward))
    for name, listener in outward.items():
        out = Relay(lambda path=f"/proc/self/fd/{folder}/{name}": asyncio.open_unix_connection(path))  # type: ignore[misc]
        servers.append(await asyncio.start_server(out.take, sock=listener))
    await asyncio.Event().wait()


def _become(argv: Sequence[str]) -> None:
    """Run the program as `python PROGRAM …` does in its directory."""
    from ratchet import agentkit
    from ratchet.agentkit import store

    program = argv[0]
    # That of the parent is the state of another directory.
    agentkit.state = store.state = store.StateStore(Path.cwd())
    sys.argv = list(argv)
    sys.path[:0] = [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.dont_write_bytecode = True
    main = ModuleType("__main__")
    main.__file__ = program
    sys.modules["__main__"] = main
    try:
        exec(compile(Path(program).read_bytes(), program, "exec"), main.__dict__)
    except Exception as error:  # noqa: BLE001 - told as Python tells of what ends a program
        # Without the lines that are ours.
        trace = None if error.__traceback__ is None else error.__traceback__.tb_next
        traceback.print_exception(type(error), error, trace)
        raise SystemExit(1) from None


_TIMES = 8
# Enough for Python to take what is called for hot, which changes its code in memory.


def prepare() -> None:
    """Load and do what every server does, once for all that are forked from this process: they share what it leaves."""
    import logging

    # Not of the kit, and the library would load it for its log where it finds it.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import mcp.client.streamable_http  # noqa: F401

    from ratchet.agentkit import client, store  # noqa: F401
    from ratchet.agentkit.mcp_server import practise

    # The library sets up a log of its own where there is none yet.
    logging.getLogger().addHandler(quiet := logging.NullHandler())
    for _ in range(_TIMES):
        asyncio.run(practise())
    asyncio.run(_practise())
    store.first_fault({"a": 1}, b'{"type": "object", "properties": {"a": {"type": "integer"}}}')
    logging.getLogger().removeHandler(quiet)
    del sys.modules["rich"]


async def _practise() -> None:
    async def far() -> Streams:
        return await asyncio.open_connection(sock=outer)

    for _ in range(_TIMES):
        (near, caller), (outer, answerer) = socket.socketpair(), socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=near)
        taking = asyncio.create_task(Relay(far).take(reader, writer))
        for one, other in ((caller, answerer), (answerer, caller)):
            one.sendall(b"practice")
            other.setblocking(False)
            await asyncio.get_running_loop().sock_recv(other, 100)
        caller.close()
        answerer.close()
        await taking
