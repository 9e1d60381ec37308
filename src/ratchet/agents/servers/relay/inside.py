"""The half that runs in the sandbox, beside the server."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from .carrying import ADDRESS, TO_RATCHET, TO_SERVER, Carrier, opened


def main() -> NoReturn:
    """Arguments: the directory of the sockets, the server's port, Ratchet's port, and the server's command."""
    folder, port, ratchet_port, *argv = sys.argv[1:]
    with (
        opened(Path(folder)) as short,
        socket.socket(socket.AF_UNIX) as inward,
        socket.socket() as outward,
    ):
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
    to_server = Carrier(lambda: asyncio.open_connection(ADDRESS, port))
    to_ratchet = Carrier(lambda: asyncio.open_unix_connection(ratchet))
    await asyncio.start_unix_server(to_server.take, sock=inward)
    await asyncio.start_server(to_ratchet.take, sock=outward)
    await asyncio.Event().wait()
