"""A limit to what a request may carry."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 10 * 1024 * 1024


class BodyLimit:
    """Refuses a longer body with 413: at once when its length is announced, else when the limit is passed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("Content-Length", "")
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            _check(received)
            return message

        _check(int(announced) if announced.isdecimal() else 0)
        await self._app(scope, limited, send)


def _check(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"the request is longer than {MAX_BODY_BYTES} bytes")
