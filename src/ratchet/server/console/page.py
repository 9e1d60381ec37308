"""A page: what it shows as plain data, put into its template; the same data as JSON is its twin."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

from fastapi import Depends, Request
from fastapi.encoders import jsonable_encoder
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from ratchet import __version__
from ratchet.server.console.access import ROOT, Visit, Visits, inside
from ratchet.server.console.formats import FILTERS, clean, tool_place
from ratchet.server.service import Access, Api


class MenuPlace(NamedTuple):
    """`key` leads there from the keyboard, after a g."""

    name: str
    path: str
    key: str


PLACES = (
    MenuPlace("Home", "/console/", "h"),
    MenuPlace("Runs", "/console/runs", "n"),
    MenuPlace("Projects", "/console/projects", "o"),
    MenuPlace("Protocols", "/console/protocols", "p"),
    MenuPlace("Research", "/console/research", "r"),
    MenuPlace("Workflows", "/console/workflows", "w"),
    MenuPlace("Tools", "/console/tools", "t"),
    MenuPlace("Agents", "/console/agents", "a"),
    MenuPlace("Sessions", "/console/sessions", "s"),
    MenuPlace("Events", "/console/events", "e"),
    MenuPlace("Queue", "/console/queue", "q"),
    MenuPlace("Usage", "/console/usage", "u"),
    MenuPlace("Settings", "/console/settings", "c"),
)


ASSETS = Path(__file__).parent / "assets"
_SAID = "ratchet_said"
_LONGEST_SAID = 500


@functools.cache
def asset(name: str) -> str:
    """The address of an asset. It changes with the content, so that browsers may keep it for ever."""
    version = hashlib.sha256((ASSETS / name).read_bytes()).hexdigest()[:12]
    return f"{ROOT}/assets/{name}?v={version}"


@functools.cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ratchet.server.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals.update(asset=asset, root=ROOT, places=PLACES, version=__version__, tool_place=tool_place)
    return made


@dataclass(frozen=True, slots=True)
class View:
    """One request for a page, and the ways to answer it."""

    request: Request
    api: Access
    visit: Visit | None

    def show(
        self,
        template: str,
        document: Mapping[str, Any],
        *,
        title: str,
        live: Mapping[str, Any] | None = None,
        status: int = 200,
    ) -> Response:
        """The page, or its twin if JSON was asked for.

        `document` is all that the page shows, and its template knows nothing else of it. `live` says which events make
        the page out of date: filters as of `/events`, `{}` for every event, None for a page that never changes.
        """
        # Texts of programs may hold what no browser can be sent.
        shown = clean(jsonable_encoder(document))
        if wants_json(self.request):
            return JSONResponse(shown, status)
        page = render(self.request, template, shown, title=title, visit=self.visit, live=live)
        answer = HTMLResponse(page, status)
        # A page that only refreshes itself leaves the message to the page that the action leads to.
        if _SAID in self.request.cookies and "HX-Request" not in self.request.headers:
            answer.delete_cookie(_SAID, path=ROOT)
        return answer

    def done(self, said: str, to: str) -> Response:
        """After an action: back to a page, which tells what was done."""
        answer = RedirectResponse(inside(to), HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            _SAID, quote(said[:_LONGEST_SAID]), max_age=60, path=ROOT, httponly=True, samesite="lax"
        )
        return answer


def wants_json(request: Request) -> bool:
    accepted = request.headers.get("Accept", "")
    return request.query_params.get("format") == "json" or (
        "application/json" in accepted and "text/html" not in accepted
    )


def render(
    request: Request,
    template: str,
    document: Mapping[str, Any],
    *,
    title: str,
    visit: Visit | None,
    live: Mapping[str, Any] | None = None,
) -> str:
    visits: Visits = request.app.state.visits
    query = [(key, value) for key, value in request.query_params.multi_items() if key != "format"]
    path = request.scope["path"]
    return (
        environment()
        .get_template(template)
        .render(
            document,
            title=title,
            path=path,
            url=f"{path}?{urlencode(query)}" if query else path,
            twin=f"{path}?{urlencode([*query, ('format', 'json')])}",
            csrf=visits.csrf(visit) if visit else None,
            visit=visit,
            live=None if live is None else f"{ROOT}/live?{urlencode(live)}",
            said=unquote(request.cookies.get(_SAID, "")),
            query=dict(query),
        )
    )


async def _view(request: Request, api: Api) -> View:
    return View(request, api, request.state.visit)


Page = Annotated[View, Depends(_view)]
