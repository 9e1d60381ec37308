"""Everything that happened, newest first."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.server import shapes
from ratchet.server.console.rendering import Page
from ratchet.server.paging import Paging
from ratchet.server.routes.events import Where, page_of_events

router = APIRouter()


@router.get("/events")
def events(page: Page, pager: Paging, where: Where) -> Response:
    found = page_of_events(page.api, pager, where)
    filters = asdict(where)
    document = {
        "events": [shapes.Event.model_validate(each) for each in found.items],
        "next": found.next,
        "filters": filters,
        "filtered": any(value is not None for value in filters.values()),
    }
    newest = pager.before is None
    live = {name: value for name, value in filters.items() if value is not None} if newest else None
    return page.show("events.html", document, title="Events", live=live)
