"""How a server without a network is reached, and reaches Ratchet: over two sockets in a directory.

Half of it runs in the sandbox, by a bare Python, so nothing here imports anything but the standard library.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TO_SERVER, TO_RATCHET = "server.sock", "ratchet.sock"
ADDRESS = "127.0.0.1"
_PIECE = 64 * 1024


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
            self._end(writer)
            return
        self._open.add(far_writer)
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
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


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
        target.write_eof()
    except OSError:
        # One side broke off: so does the other, which ends the copying the other way as well.
        target.transport.abort()


def main() -> NoReturn:
    """Start the half beside the server, then become the server.

    Arguments: the directory of the sockets, the server's port, Ratchet's port, and the server's command.
    """
    folder, port, ratchet_port, *argv = sys.argv[1:]
    with opened(Path(folder)) as short, socket.socket(socket.AF_UNIX) as inward, socket.socket() as outward:
        inward.bind(str(short / TO_SERVER))
        outward.bind((ADDRESS, int(ratchet_port)))
        for each in (inward, outward):
            each.listen()
        # A grandchild, so that the server has no child that it did not start.
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                asyncio.run(_carry(inward, outward, short / TO_RATCHET, int(port)))
            os._exit(0)
        os.waitpid(child, 0)
        os.execv(argv[0], argv)


async def _carry(inward: socket.socket, outward: socket.socket, ratchet: Path, port: int) -> None:
    to_server = Relay(lambda: asyncio.open_connection(ADDRESS, port))
    to_ratchet = Relay(lambda: asyncio.open_unix_connection(ratchet))
    await asyncio.start_unix_server(to_server.take, sock=inward)
    await asyncio.start_server(to_ratchet.take, sock=outward)
    await asyncio.Event().wait()
