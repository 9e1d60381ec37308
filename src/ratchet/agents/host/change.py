"""Waiting for something that changes again and again."""

from __future__ import annotations

import asyncio


class Change:
    """Everybody who waits is woken by the next `tell`, and looks at what has become of the thing."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def tell(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        await self._next.wait()
