"""A server that must not reach other machines: it has a network of its own, from which only Ratchet is reached."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

from ratchet.agents.servers.relay.carrying import ADDRESS, TO_RATCHET, TO_SERVER, Carrier, Streams, opened

_START = "import sys; sys.path.append(sys.argv.pop(1)); from relay.inside import main; main()"


@asynccontextmanager
async def relayed(port: int, ratchet_port: int) -> AsyncIterator[Path]:
    """Carry what comes to `port` of this machine into a directory, and what comes out of it to Ratchet's port.

    Raises `OSError` if the port is taken.
    """
    # Slow to import, and most servers have the network.
    from ratchet.judges.scratch import scratch

    async with scratch() as folder:
        inward = Carrier(lambda: _reach(folder / TO_SERVER))
        outward = Carrier(lambda: asyncio.open_connection(ADDRESS, ratchet_port))
        with (
            opened(folder) as short,
            closing(inward),
            closing(outward),
            closing(await asyncio.start_server(inward.take, ADDRESS, port)),
            closing(await asyncio.start_unix_server(outward.take, short / TO_RATCHET)),
        ):
            yield folder


def beside_relay(argv: Sequence[str], folder: Path, port: int, ratchet_port: int) -> list[str]:
    """The command of a server, with the half of the relay that runs beside it."""
    here = str(Path(__file__).parent)
    return [sys.executable, "-I", "-S", "-c", _START, here, str(folder), str(port), str(ratchet_port), *argv]


async def _reach(path: Path) -> Streams:
    """Connect to the socket at `path`, but not through a link, which the server could have put there."""
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise ConnectionRefusedError(f"{path} is not a socket")
        return await asyncio.open_unix_connection(f"/proc/self/fd/{place}")
    finally:
        os.close(place)
