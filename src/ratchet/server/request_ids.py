"""A name for each request, so that an answer, its log lines and its events can be brought together."""

from __future__ import annotations

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.kernel import new_id
from ratchet.observe import logs

HEADER = "X-Request-ID"
_SANE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?")


class RequestIds:
    """Takes the caller's request id when it is sane, else makes one; binds it in the logs and answers with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _SANE.fullmatch(given) else new_id("request")
        scope.setdefault("state", {})["request_id"] = request_id

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        with logs.bind(request_id=request_id):
            await self._app(scope, receive, named)
