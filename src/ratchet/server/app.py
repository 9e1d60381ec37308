"""The API and the console as one ASGI application. Opening it starts nothing."""

from __future__ import annotations

import re
import time
from functools import cache
from http import HTTPStatus

from fastapi import APIRouter, Depends, FastAPI
from fastapi.middleware import Middleware
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
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
from ratchet.server.problems import DOCUMENTED, HANDLERS, Problems, documented
from ratchet.server.project_scope import Authorisation, bearer, guard
from ratchet.server.routes import attempts, events, flows, health, webhooks
from ratchet.server.service import Service
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
    app = FastAPI(
        title="Ratchet",
        version=__version__,
        summary="Runs coding agents in a loop that only moves forward.",
        # Its page would be loaded from elsewhere; /openapi.json is served from here.
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
            Middleware(Authorisation, token=token, ledger=runtime.ledger),
            Middleware(BodyLimit),
        ],
    )
    service = app.state.service = Service(runtime, loaded, process_id)
    app.state.face = face
    app.mount(ROOT, create_console(service, token))
    for path in ("/", ROOT):
        app.add_api_route(path, _to_console, include_in_schema=False)
    return app


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
