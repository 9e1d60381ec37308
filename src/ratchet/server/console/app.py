"""The console as one ASGI application, mounted at /console."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request
from fastapi.sse import format_sse_event
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from ratchet.kernel import Misuse
from ratchet.ledger.projects import project_of_token
from ratchet.server.console import (
    administration,
    agent_calls,
    agents,
    attempts,
    projects,
    protocols,
    research,
    runs,
    tools,
    workflows,
)
from ratchet.server.console.access import (
    ENTER,
    HOME,
    LIFETIME_SECONDS,
    ROOT,
    Acting,
    Door,
    Visit,
    Visits,
    inside,
)
from ratchet.server.console.page import ASSETS, Page, render, wants_json
from ratchet.server.problems import HANDLERS as PROBLEMS
from ratchet.server.problems import problem
from ratchet.server.project_scope import guard
from ratchet.server.routes.events import NO_STORE, EventStream, Start, Where, visible
from ratchet.server.service import Access, Api, ProjectTokenNeeded, Service, hash_of

ROUTERS = (
    runs.router,
    administration.router,
    agent_calls.router,
    agents.router,
    tools.router,
    workflows.run_router,
    workflows.router,
    attempts.router,
    projects.router,
    protocols.router,
    research.router,
)


signing_in = APIRouter()
Given = Annotated[str, Form(max_length=4096)]
Wanted = Annotated[str, Form(alias="next", max_length=2000)]


@signing_in.get("/enter")
async def entrance(
    request: Request,
    token: Annotated[str | None, Query(max_length=4096)] = None,
    wanted: Annotated[str, Query(alias="next", max_length=2000)] = HOME,
) -> Response:
    """With the token: signed in, at an address without it. Without: the form."""
    return _form(request, wanted) if token is None else _sign_in(request, token, wanted)


@signing_in.post("/enter")
async def sign_in(request: Request, token: Given, wanted: Wanted = HOME) -> Response:
    return _sign_in(request, token.strip(), wanted)


@signing_in.post("/leave")
async def leave(request: Request, _: Acting) -> Response:
    visits: Visits = request.app.state.visits
    answer = RedirectResponse(ENTER, HTTPStatus.SEE_OTHER)
    answer.delete_cookie(visits.cookie, path=ROOT)
    return answer


@signing_in.post("/project-token")
def show_project_token(page: Page, _: Acting, token: Given, wanted: Wanted = HOME) -> Response:
    """A project with a token of its own is shown to those who show it. Raises `Misuse`."""
    shown = hash_of(token.strip().encode())
    with page.api.read() as tx:
        project_id = project_of_token(tx, shown)
    if project_id is None or page.visit is None:
        raise Misuse("no project has this token", hint="the token was given when the project was registered")
    answer = page.done(f"Project {project_id} is open to you now.", wanted)
    _set(page.request, answer, page.visit.showing(shown))
    return answer


def _sign_in(request: Request, token: str, wanted: str) -> Response:
    visits: Visits = request.app.state.visits
    if not visits.is_token(token):
        return _form(request, wanted, refused=True)
    answer = RedirectResponse(inside(wanted), HTTPStatus.SEE_OTHER)
    _set(request, answer, visits.begin())
    return answer


def _set(request: Request, answer: Response, visit: Visit) -> None:
    visits: Visits = request.app.state.visits
    answer.set_cookie(
        visits.cookie,
        visits.sealed(visit),
        max_age=LIFETIME_SECONDS,
        path=ROOT,
        httponly=True,
        secure=request.url.scheme == "https",
        # Not `strict`: a link to a page, in a chat say, should open it. Acting needs a form of ours anyway.
        samesite="lax",
    )


def _form(request: Request, wanted: str, *, refused: bool = False) -> Response:
    page = render(
        request,
        "enter.html",
        {"wanted": inside(wanted), "refused": refused, "enter": ENTER},
        title="Sign in",
        visit=None,
    )
    return HTMLResponse(page, HTTPStatus.UNAUTHORIZED if refused else HTTPStatus.OK)


changes = APIRouter()
_PAUSE_SECONDS = 0.4


@changes.get("/live", response_class=EventStream)
async def live(api: Api, where: Where, after: Start) -> EventStream:
    return EventStream(_changes(api, after, where), headers=NO_STORE)


async def _changes(api: Access, after: int, where: Where) -> AsyncIterator[bytes]:
    """`changed` with the number of the newest event, for every burst of them."""
    changed, newest, over = asyncio.Event(), after, False

    async def listen() -> None:
        nonlocal newest, over
        try:
            async with aclosing(visible(api, after, where)) as events:
                async for event in events:
                    newest = event.id
                    changed.set()
        finally:
            over = True
            changed.set()

    listening = asyncio.create_task(listen())
    try:
        while True:
            await changed.wait()
            changed.clear()
            if newest > after:
                after = newest
                yield format_sse_event(event="changed", id=str(newest), data_str=str(newest))
            if over:
                await listening
                return
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        listening.cancel()


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


def _page(request: Request, answered: Response, error: Exception) -> Response:
    if wants_json(request) or not isinstance(answered, JSONResponse):
        return answered
    found = {"title": "", "detail": "", "hint": None, "request_id": None, **_content(answered)}
    if isinstance(error, HTTPException) and error.status_code == 404:
        found["hint"] = "the bar above leads to everything there is"
    document = {"problem": found, "needs_token": isinstance(error, ProjectTokenNeeded)}
    page = render(
        request, "problem.html", document, title=found["title"], visit=getattr(request.state, "visit", None)
    )
    kept = {name: value for name, value in answered.headers.items() if name == "retry-after"}
    return HTMLResponse(page, answered.status_code, kept)


def _content(answered: JSONResponse) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bytes(answered.body))
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
    pages.include_router(signing_in)
    for router in (changes, *ROUTERS):
        pages.include_router(router, dependencies=[Depends(guard)])
    return pages.routes


class _Assets(StaticFiles):
    """Files that never change under the address that pages give for them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return answer
