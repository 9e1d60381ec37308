"""The console as one ASGI application, mounted at /console."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter, Depends, FastAPI
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from ratchet.server.console import entering, live
from ratchet.server.console.door import Door
from ratchet.server.console.failing import HANDLERS
from ratchet.server.console.pages import ROUTERS
from ratchet.server.console.rendering import ASSETS
from ratchet.server.console.visits import Visits
from ratchet.server.project_scope import guard
from ratchet.server.service import Service


def create_console(service: Service, token: str) -> ASGIApp:
    """The console of `service`, open to those who know `token`."""
    visits = Visits(token)
    console = FastAPI(openapi_url=None, redirect_slashes=False, routes=_routes(), exception_handlers=HANDLERS)
    console.state.service = service
    console.state.face = "console"
    console.state.visits = visits
    console.mount("/assets", _Assets(directory=ASSETS))
    # Around the whole, not as a middleware: the answer to an error that nobody expected goes through the door as well.
    return Door(console, visits)


@cache
def _routes() -> list[BaseRoute]:
    """Made once, as those of the API are."""
    pages = APIRouter()
    pages.include_router(entering.router)
    for router in (live.router, *ROUTERS):
        pages.include_router(router, dependencies=[Depends(guard)])
    return pages.routes


class _Assets(StaticFiles):
    """Files that never change under the address that pages give for them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return answer
