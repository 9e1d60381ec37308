"""MCP servers that are kept between the calls of one run: starting one takes longer than most of its answers.

Each call has a server for itself, as if it had been started for it; one that has answered is kept for the next call.
What went wrong in any way, or took too long, is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, TextIO

import anyio

_LEAVING_SECONDS = 5.0
_WELL_SECONDS = 5.0


class KeptServer:
    """One connection, held open by a task of its own: it must be closed by the task that opened it.

    `complaints` is what it writes to stderr, and can be read until it is closed.
    """

    def __init__(self, protocol: ModuleType, place: Any, complaints: TextIO) -> None:
        self.complaints = complaints
        self._protocol = protocol
        self._scope = anyio.CancelScope()
        self._enough = asyncio.Event()
        self._client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.kept = asyncio.create_task(self._keep(place))

    async def ask(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """What `ask_tool` of the protocol answers, and raises."""
        with anyio.fail_after(seconds):
            client = await asyncio.shield(self._client)
            return await self._protocol.ask_client(client, tool, arguments)

    async def is_well(self) -> bool:
        """Whether it still answers; it may have ended itself since the last call."""
        if self.kept.done():
            return False
        try:
            with anyio.fail_after(_WELL_SECONDS):
                return bool(await self._protocol.still_answers(self._client.result()))
        except Exception:  # noqa: BLE001 - whatever is wrong with it, another one is started
            return False

    def leave(self) -> None:
        """Say goodbye, for which it has a moment."""
        self._scope.deadline = anyio.current_time() + _LEAVING_SECONDS
        self._enough.set()
        self.complaints.close()

    def end(self) -> None:
        """End it, whatever it does."""
        self._scope.cancel()
        self.complaints.close()

    async def _keep(self, place: Any) -> None:
        try:
            with self._scope:
                async with self._protocol.connected(place) as client:
                    self._client.set_result(client)
                    await self._enough.wait()
        except Exception as error:  # noqa: BLE001 - raised to the waiting caller; later the next call notices the end
            if not self._client.done():
                self._client.set_exception(error)
        finally:
            if not self._client.done():
                self._client.cancel()
            elif not self._client.cancelled():
                self._client.exception()


class KeptServers:
    """The servers of one run, in its event loop."""

    def __init__(self) -> None:
        self._idle: dict[str, list[KeptServer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def lent(self, key: str, start: Callable[[], Awaitable[KeptServer]]) -> AsyncIterator[KeptServer]:
        """A server of this key for one call. It is kept if the block ends well, and ended otherwise."""
        server = await self._waiting(key)
        if server is None:
            server = await start()
            self._tasks.add(server.kept)
            server.kept.add_done_callback(self._tasks.discard)
        try:
            yield server
        except BaseException:
            server.end()
            raise
        self._idle.setdefault(key, []).append(server)

    async def aclose(self) -> None:
        for server in (each for servers in self._idle.values() for each in servers):
            server.leave()
        self._idle.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _waiting(self, key: str) -> KeptServer | None:
        while idle := self._idle.get(key):
            server = idle.pop()
            if await server.is_well():
                return server
            server.end()
        return None
