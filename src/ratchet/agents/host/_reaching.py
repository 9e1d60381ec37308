"""Finding the host that a home has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ratchet.agents.seat import announced

if TYPE_CHECKING:
    from ratchet.config import Loaded
    from ratchet.runtime import Runtime

_ANSWER_SECONDS = 5.0


@asynccontextmanager
async def reached(runtime: Runtime, loaded: Loaded) -> AsyncIterator[str]:
    """Where the agents of this home answer: the URL of its host, or of one that serves this block alone."""
    url = announced(loaded.home)
    if url is not None and await _answers(url):
        yield url
        return
    # Only now: a command that finds a running host needs nothing of what one is made of.
    from ratchet.agents.host._hosting import hosting_alone

    async with hosting_alone(runtime, loaded) as url:
        yield url


async def _answers(url: str) -> bool:
    """Whether somebody speaks HTTP there."""
    parts = urlsplit(url)
    request = f"GET / HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(request)
                return (await reader.read(5)).startswith(b"HTTP/")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
