"""The API and the console as one ASGI application. Opening it starts nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.middleware import Middleware
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet import __version__
from ratchet.agents.access import OPERATIONS as ACCESS_OPERATIONS
from ratchet.agents.judge_operations import OPERATIONS as JUDGE_OPERATIONS
from ratchet.agents.operations import OPERATIONS as AGENT_OPERATIONS
from ratchet.agents.production_operations import OPERATIONS as PRODUCTION_OPERATIONS
from ratchet.config import Loaded
from ratchet.kernel import new_id
from ratchet.observe import logs, metrics, tracing
from ratchet.observe.logs import logger
from ratchet.projects.operations import OPERATIONS as PROJECT_OPERATIONS
from ratchet.runtime import Runtime
from ratchet.runtime.operations import approvals, jobs, runs, schedules
from ratchet.server.console import create_console
from ratchet.server.console.access import HOME, ROOT
from ratchet.server.operation import router_of
from ratchet.server.problems import DOCUMENTED, HANDLERS, RETRY_SECONDS, Problems, documented
from ratchet.server.project_scope import Authorisation, bearer, guard
from ratchet.server.routes import attempts, events, flows, health, webhooks
from ratchet.server.service import NOBODY, Caller, Service
from ratchet.tools.operations import OPERATIONS as TOOL_OPERATIONS
from ratchet.workflows import tool_operations
from ratchet.workflows.schedules import OPERATIONS as SCHEDULE_OPERATIONS
from ratchet.workflows.triggers import OPERATIONS as TRIGGER_OPERATIONS

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
# Of all bodies that are held at a time: of the operator, of other callers with a token, of strangers.
_MOST_HELD_BYTES = 32 * 1024 * 1024
# An empty list is two bytes of a body, and thirty times as much once it is read.
_MOST_CONTAINERS = 1_000_000


@dataclass(eq=False, slots=True)
class HeldBody:
    task: asyncio.Task[Any]
    size: int = 0
    containers: int = 0
    arrives: bool = True
    cut_off: bool = False


class Bodies:
    """The bodies of one kind of caller, from their first byte until their requests are answered.

    Where they are too much, the longest that still arrives is cut off: however much some send, a short one is taken.
    """

    def __init__(self) -> None:
        self._held: set[HeldBody] = set()
        self._bytes = 0

    @contextmanager
    def one(self) -> Iterator[HeldBody]:
        """Raises `HTTPException` when this is the body that is cut off."""
        task = asyncio.current_task()
        assert task is not None
        body = HeldBody(task)
        self._held.add(body)
        try:
            yield body
        except asyncio.CancelledError:
            if not body.cut_off:
                raise
            task.uncancel()
            raise _no_room() from None
        finally:
            self._release(body)

    def add(self, body: HeldBody, message: Message) -> None:
        """Raises `HTTPException` for a body that is too much."""
        part = message.get("body", b"")
        body.size += len(part)
        self._bytes += len(part)
        body.containers += part.count(b"[") + part.count(b"{")
        body.arrives = message.get("more_body", False)
        _check(body.size)
        if body.containers > _MOST_CONTAINERS:
            raise HTTPException(413, f"the request has more than {_MOST_CONTAINERS:,} lists and objects")
        if self._bytes <= _MOST_HELD_BYTES:
            return
        longest = max((each for each in self._held if each.arrives or each is body), key=lambda it: it.size)
        if longest is body:
            raise _no_room()
        longest.cut_off = True
        self._release(longest)
        longest.task.cancel()

    def _release(self, body: HeldBody) -> None:
        if body in self._held:
            self._held.remove(body)
            self._bytes -= body.size


class BodyLimit:
    """Refuses a body that is too long with 413, at once when its length is announced, and one for which there is no
    room now with 503."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._operators, self._others, self._strangers = Bodies(), Bodies(), Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("Content-Length", "")
        _check(int(announced) if announced.isdecimal() else 0)
        bodies = self._of(scope.get("state", {}).get("caller", NOBODY))
        with bodies.one() as body:

            async def limited() -> Message:
                message = await receive()
                bodies.add(body, message)
                return message

            await self._app(scope, limited, send)

    def _of(self, caller: Caller) -> Bodies:
        if caller.is_operator:
            return self._operators
        return self._strangers if caller is NOBODY else self._others


def _check(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"the request is longer than {MAX_BODY_BYTES} bytes")


def _no_room() -> HTTPException:
    detail = "too many long requests arrive at a time; send this one again later"
    return HTTPException(503, detail, headers={"Retry-After": RETRY_SECONDS})


_log = logger(__name__)
_PART_BYTES = 64 * 1024
_SHOWN = 300
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
    """The path as it was sent: still escaped, so that it cannot break a log line, and no longer than one."""
    return str(scope.get("raw_path", b"").partition(b"?")[0][:_SHOWN], "ascii", "backslashreplace")


_OPEN = (health.router, webhooks.router)
_GUARDED = (
    router_of("projects", PROJECT_OPERATIONS, responses=documented(400, 401, 403, 422, 502)),
    flows.protocols,
    flows.steps,
    flows.specs,
    router_of("runs", runs.OPERATIONS),
    attempts.router,
    router_of("agents", (*AGENT_OPERATIONS, *JUDGE_OPERATIONS, *PRODUCTION_OPERATIONS, *ACCESS_OPERATIONS)),
    flows.research,
    flows.workflows,
    router_of("tools", (*TOOL_OPERATIONS, *tool_operations.OPERATIONS)),
    router_of("approvals", approvals.OPERATIONS),
    attempts.artifact_router,
    events.router,
    flows.queues,
    router_of("jobs", jobs.JOB_OPERATIONS),
    router_of("schedules", (*SCHEDULE_OPERATIONS, *schedules.OPERATIONS)),
    router_of("triggers", TRIGGER_OPERATIONS),
    router_of("processes", jobs.PROCESS_OPERATIONS),
)


def create_app(
    runtime: Runtime, loaded: Loaded, token: str, *, process_id: str | None = None, face: str = "api"
) -> FastAPI:
    """The API on `runtime`. `process_id` is that of this process in the ledger, if it is registered.

    `face` is what the ledger calls those who ask.
    """
    service = Service(runtime, loaded, process_id)
    app = FastAPI(
        title="Ratchet",
        version=__version__,
        summary="Runs coding agents in a loop that only moves forward.",
        # Its page would be loaded from elsewhere; /openapi.json is served by `Description`.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=DOCUMENTED,
        routes=_routes(),
        exception_handlers=HANDLERS,
        # The first sees a request first and its answer last.
        middleware=[
            Middleware(RequestIds),
            Middleware(Measuring),
            Middleware(Problems),
            Middleware(
                Authorisation, token=token, ledger=runtime.ledger, open_requests=service.open_requests
            ),
            Middleware(BodyLimit),
        ],
    )
    app.state.service = service
    app.state.face = face
    app.mount(ROOT, create_console(service, token))
    described = Description(app).answer
    app.add_api_route("/openapi.json", described, methods=["GET", "HEAD"], include_in_schema=False)
    for path in ("/", ROOT):
        app.add_api_route(path, _to_console, include_in_schema=False)
    return app


class Description:
    """/openapi.json: made when it is first wanted, in a thread and once, and then known by its hash."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._making: asyncio.Future[bytes] | None = None

    async def answer(self, request: Request) -> Response:
        if self._making is None:
            self._making = asyncio.ensure_future(run_in_threadpool(self._make))
        # Who leaves does not end what others wait for.
        try:
            content = await asyncio.shield(self._making)
        except Exception:
            self._making = None
            raise
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if etag in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=headers)
        headers["Content-Length"] = str(len(content))
        return StreamingResponse(_parts(content), media_type="application/json", headers=headers)

    def _make(self) -> bytes:
        return json.dumps(self._app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()


async def _parts(content: bytes) -> AsyncIterator[bytes]:
    """One after the other, as the caller reads them: what is not read is not copied."""
    for start in range(0, len(content), _PART_BYTES):
        yield content[start : start + _PART_BYTES]


@cache
def _routes() -> list[BaseRoute]:
    """Made once for every application: the first request waits until FastAPI has worked out what each one needs."""
    router = APIRouter(responses=DOCUMENTED)
    for each in _OPEN:
        router.include_router(each)
    for each in _GUARDED:
        router.include_router(each, dependencies=[Depends(bearer), Depends(guard)])
    return router.routes


async def _to_console() -> RedirectResponse:
    return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)
