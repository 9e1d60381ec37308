"""What goes wrong, as a page that says so and what to do next."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from ratchet.server.caller import ProjectTokenNeeded
from ratchet.server.console.rendering import render, wants_json
from ratchet.server.problems import HANDLERS as PROBLEMS
from ratchet.server.problems import problem

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
