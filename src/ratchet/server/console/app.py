"""The console as one ASGI application, mounted at /console."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from ratchet.server.console import live, login
from ratchet.server.console.access import Door, Visits
from ratchet.server.console.page import ASSETS, render, wants_json
from ratchet.server.console.pages import ROUTERS
from ratchet.server.problems import HANDLERS as PROBLEMS
from ratchet.server.problems import problem
from ratchet.server.project_scope import guard
from ratchet.server.service import ProjectTokenNeeded, Service

Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]


def _as_page(handler: Handler) -> Handler:
    async def answer(request: Request, error: Exception) -> Response:
        return _page(request, await handler(request, error), error)

    return answer


async def _unexpected(request: Request, _error: Exception) -> Response:
    """The error itself goes to the log."""
    return problem(
        request.scope, 500, "Unexpected", "something went wrong inside", hint="the server's log says what"
    )


def _page(request: Request, told: Response, error: Exception) -> Response:
    if wants_json(request) or not isinstance(told, JSONResponse):
        return told
    found = {"title": "", "detail": "", "hint": None, "request_id": None, **_content(told)}
    if isinstance(error, HTTPException) and error.status_code == 404:
        found["hint"] = "the bar above leads to everything there is"
    document = {"problem": found, "needs_token": isinstance(error, ProjectTokenNeeded)}
    page = render(
        request, "problem.html", document, title=found["title"], visit=getattr(request.state, "visit", None)
    )
    kept = {name: value for name, value in told.headers.items() if name == "retry-after"}
    return HTMLResponse(page, told.status_code, kept)


def _content(told: JSONResponse) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bytes(told.body))
    return content


HANDLERS: dict[int | type[Exception], Handler] = {
    **{kind: _as_page(handler) for kind, handler in PROBLEMS.items()},
    Exception: _as_page(_unexpected),
}


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
    pages.include_router(login.router)
    for router in (live.router, *ROUTERS):
        pages.include_router(router, dependencies=[Depends(guard)])
    return pages.routes


class _Assets(StaticFiles):
    """Files that never change under the address that pages give for them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return answer
