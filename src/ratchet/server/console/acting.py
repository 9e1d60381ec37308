"""Actions from a page: only by a form that this visit was given, and only from a page of ours."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from ratchet.kernel import RatchetError
from ratchet.server.console.visits import Visits

FIELD = "csrf"
HEADER = "X-CSRF-Token"


class ForeignForm(RatchetError):
    """The form does not come from a page that this server gave to this visitor."""

    http_status = 403


async def _act(request: Request) -> None:
    """Raises `ForeignForm` unless the request comes from a form of the visitor's own."""
    visits: Visits = request.app.state.visits
    visit = request.state.visit
    if visit is None:
        raise ForeignForm(
            "only somebody who came in by the console can act in it", hint="use the API instead"
        )
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise ForeignForm("the form was sent by a page of another site")
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("Host"):
        raise ForeignForm(f"the form was sent by a page of {origin}")
    given = request.headers.get(HEADER) or (await request.form()).get(FIELD)
    if not isinstance(given, str) or not visits.is_csrf(visit, given):
        raise ForeignForm("the form is out of date", hint="load the page again and send it from there")


# What every POST of the console depends on.
Acting = Annotated[None, Depends(_act)]
