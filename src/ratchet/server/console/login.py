"""The way in and out: the token link, the form for those who come without it, and tokens of projects."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ratchet.kernel import Misuse
from ratchet.ledger.projects import project_of_token
from ratchet.server.console.access import ENTER, HOME, LIFETIME_SECONDS, ROOT, Acting, Visit, Visits, inside
from ratchet.server.console.page import Page, render
from ratchet.server.service import hash_of

router = APIRouter()
Given = Annotated[str, Form(max_length=4096)]
Wanted = Annotated[str, Form(alias="next", max_length=2000)]


@router.get("/enter")
async def way_in(
    request: Request,
    token: Annotated[str | None, Query(max_length=4096)] = None,
    wanted: Annotated[str, Query(alias="next", max_length=2000)] = HOME,
) -> Response:
    """With the token: in, and the address is left without it. Without: the form."""
    return _form(request, wanted) if token is None else _come_in(request, token, wanted)


@router.post("/enter")
async def come_in(request: Request, token: Given, wanted: Wanted = HOME) -> Response:
    return _come_in(request, token.strip(), wanted)


@router.post("/leave")
async def leave(request: Request, _: Acting) -> Response:
    visits: Visits = request.app.state.visits
    answer = RedirectResponse(ENTER, HTTPStatus.SEE_OTHER)
    answer.delete_cookie(visits.cookie, path=ROOT)
    return answer


@router.post("/project-token")
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


def _come_in(request: Request, token: str, wanted: str) -> Response:
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
        title="Come in",
        visit=None,
    )
    return HTMLResponse(page, HTTPStatus.UNAUTHORIZED if refused else HTTPStatus.OK)
