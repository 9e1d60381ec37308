"""The API and the console as one ASGI application. Opening it starts nothing."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus

from fastapi import APIRouter, Depends, FastAPI
from fastapi.middleware import Middleware
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute

from ratchet import __version__
from ratchet.agents.access import OPERATIONS as ACCESS_OPERATIONS
from ratchet.agents.judge_operations import OPERATIONS as JUDGE_OPERATIONS
from ratchet.agents.operations import OPERATIONS as AGENT_OPERATIONS
from ratchet.agents.production_operations import OPERATIONS as PRODUCTION_OPERATIONS
from ratchet.config import Loaded
from ratchet.projects.operations import OPERATIONS as PROJECT_OPERATIONS
from ratchet.runtime import Runtime
from ratchet.runtime.operations import approvals, jobs, runs, schedules
from ratchet.server.authorisation import Authorisation, bearer
from ratchet.server.console import create_console
from ratchet.server.console.access import HOME, ROOT
from ratchet.server.middleware import BodyLimit, Measuring, RequestIds
from ratchet.server.operation import router_of
from ratchet.server.problems import DOCUMENTED, HANDLERS, Problems, documented
from ratchet.server.project_scope import guard
from ratchet.server.routes import attempts, events, flows, health, webhooks
from ratchet.server.service import Service
from ratchet.tools.operations import OPERATIONS as TOOL_OPERATIONS
from ratchet.workflows import tool_operations
from ratchet.workflows.schedules import OPERATIONS as SCHEDULE_OPERATIONS
from ratchet.workflows.triggers import OPERATIONS as TRIGGER_OPERATIONS

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
