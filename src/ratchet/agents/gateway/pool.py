"""Connections to servers, kept open between requests."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict

from ratchet.agents.gateway.backend import Backend
from ratchet.agents.gateway.limits import Limits


class Pool:
    """Every caller has at most one request under way, so the connections in use are as many as the callers at most."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._idle: dict[int, list[Backend]] = defaultdict(list)

    async def take(self, port: int, *, new: bool) -> Backend:
        """A connection to a server of this machine. Raises `OSError`."""
        idle = self._idle.get(port)
        while idle and not new:
            backend = idle.pop()
            if backend.is_fresh():
                return backend
            backend.abort()
        return await self._connect(port)

    def give_back(self, backend: Backend) -> None:
        idle = self._idle[backend.port]
        if len(idle) >= self._limits.idle_backends or not backend.is_fresh():
            backend.close()
            return
        backend.idle_since = asyncio.get_running_loop().time()
        idle.append(backend)

    def look(self, now: float) -> None:
        """Hang up where nothing was asked for a while."""
        overdue = now - self._limits.idle_backend_seconds
        for port, idle in list(self._idle.items()):
            for backend in [each for each in idle if each.idle_since < overdue]:
                backend.close()
                idle.remove(backend)
            if not idle:
                del self._idle[port]

    def close(self) -> None:
        for idle in self._idle.values():
            for backend in idle:
                backend.abort()
        self._idle.clear()

    async def _connect(self, port: int) -> Backend:
        loop = asyncio.get_running_loop()
        # Named as TCP, or asyncio does not switch off Nagle.
        connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            connected.setblocking(False)
            async with asyncio.timeout(self._limits.connect_seconds):
                await loop.sock_connect(connected, ("127.0.0.1", port))
            _, backend = await loop.create_connection(
                lambda: Backend(port, connected, self._limits, self._forget), sock=connected
            )
        except BaseException:
            connected.close()
            raise
        return backend

    def _forget(self, backend: Backend) -> None:
        idle = self._idle.get(backend.port, [])
        if backend in idle:
            idle.remove(backend)
