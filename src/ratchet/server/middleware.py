"""Counting, timing, tracing and logging requests."""

from __future__ import annotations

import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.kernel import new_id
from ratchet.observe import logs, metrics, tracing
from ratchet.observe.logs import logger

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


_log = logger(__name__)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Asked for every few seconds by machines; a line for each would bury the others.
_QUIET = ("/health", "/metrics")


class Measuring:
    """Measures the time until the answer begins, so that a stream counts when it opens and not when it ends.

    Labels come from the route's template, never from what the caller wrote: their number is bounded.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        method = scope["method"] if scope["method"] in _METHODS else "other"

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                _record(scope, method, message["status"], time.monotonic() - began)
            await send(message)

        with tracing.span("http.request", **{"http.request.method": method, "url.path": _path(scope)}):
            await self._app(scope, receive, measured)


def _record(scope: Scope, method: str, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "none")
    metrics.http_requests.labels(method=method, route=route, status=str(status)).inc()
    metrics.http_request_seconds.labels(method=method, route=route).observe(seconds)
    write = _log.debug if route.startswith(_QUIET) else _log.info
    write("request", method=method, path=_path(scope), status=status, ms=round(seconds * 1000, 1))


def _path(scope: Scope) -> str:
    """The path as it was sent: still escaped, so that it cannot break a log line."""
    return str(scope.get("raw_path", b"").partition(b"?")[0], "ascii", "backslashreplace")
