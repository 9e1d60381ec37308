"""An MCP server of this process at a free port of the loopback interface, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.engines.mcp_listener import McpListener

_HOST = "127.0.0.1"


@asynccontextmanager
async def listening(
    make: Callable[[str], McpListener], close: Callable[[], Awaitable[None]]
) -> AsyncIterator[str]:
    """Let what `make` makes for an address answer there; the value is the address.

    `make` is called in a thread, since the libraries take a second to import. When the block is left, `close` ends what
    still runs before the server ends.
    """
    with _free_port() as bound:
        address = f"{_HOST}:{bound.getsockname()[1]}"
        listener = await asyncio.to_thread(make, address)
        serving = asyncio.create_task(listener.listen(bound))
        try:
            await listener.answering(serving)
            yield address
        finally:
            # Whoever is cancelled here once more need not wait; it ends all the same.
            await asyncio.shield(_end(close, listener, serving))


def _free_port() -> socket.socket:
    # Named as TCP, or asyncio does not switch off Nagle, and every answer waits 40 ms for an acknowledgement.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.bind((_HOST, 0))
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


async def _end(
    close: Callable[[], Awaitable[None]], listener: McpListener, serving: asyncio.Task[None]
) -> None:
    await close()
    listener.should_exit = True
    await asyncio.wait({serving})
