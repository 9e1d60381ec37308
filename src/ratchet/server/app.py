"""The API as one ASGI application. Opening it starts nothing."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from fastapi.middleware import Middleware

from ratchet import __version__
from ratchet.config import Loaded
from ratchet.runtime import Runtime
from ratchet.server.authorisation import Authorisation, bearer
from ratchet.server.body_limit import BodyLimit
from ratchet.server.measuring import Measuring
from ratchet.server.problems import DOCUMENTED, HANDLERS, Problems
from ratchet.server.request_ids import RequestIds
from ratchet.server.routes import (
    approvals,
    artifacts,
    events,
    health,
    jobs,
    metrics,
    processes,
    queues,
    runs,
    schedules,
    steps,
    stream,
)
from ratchet.server.service import Service

_OPEN = (health, metrics)
_GUARDED = (runs, steps, approvals, artifacts, events, stream, queues, jobs, schedules, processes)


def create_app(runtime: Runtime, loaded: Loaded, token: str, *, process_id: str | None = None) -> FastAPI:
    """The API on `runtime`. `process_id` is that of the worker beside it; without one it is not ready."""
    app = FastAPI(
        title="Ratchet",
        version=__version__,
        summary="Runs coding agents in a loop that only moves forward.",
        # Its page would be loaded from elsewhere; /openapi.json is served from here.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=DOCUMENTED,
        exception_handlers=HANDLERS,
        # The first sees a request first and its answer last.
        middleware=[
            Middleware(RequestIds),
            Middleware(Measuring),
            Middleware(Problems),
            Middleware(Authorisation, token=token),
            Middleware(BodyLimit),
        ],
    )
    app.state.service = Service(runtime, loaded, process_id)
    for module in _OPEN:
        app.include_router(module.router)
    for module in _GUARDED:
        app.include_router(module.router, dependencies=[Depends(bearer)])
    return app
