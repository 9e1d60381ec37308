"""Cancelling work at every moment of it, while what it talks to goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.http_server import listening

_MOMENTS = 180


def unheeded_moments(work: Callable[[], Coroutine[Any, Any, Any]]) -> list[int]:
    """When `work` was cancelled and ended in another way. Some moments are tried again: where the network is asked,
    none of them comes twice in the same way.
    """

    async def heeds(turns: int) -> bool:
        working = asyncio.create_task(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        too_late = not working.cancel()
        await asyncio.wait({working})
        return working.cancelled() or too_late

    async def unheeded() -> list[int]:
        return [moment for moment in range(_MOMENTS) if not await heeds(moment // 3)]

    return asyncio.run(unheeded())


def refusing_server() -> AbstractContextManager[str]:
    """The address of a server that knows nothing."""
    return listening(HTTPServer(("127.0.0.1", 0), _Refusing))


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(OSError):
            self.send_error(404)

    def log_message(self, *_: Any) -> None:
        pass
