"""Research: the runs, and the tasks that can be run."""

from __future__ import annotations

import functools

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.kernel import RunStatus
from ratchet.research import operations
from ratchet.research.views import overview
from ratchet.server.console.drawing.plot import spark
from ratchet.server.console.rendering import Page
from ratchet.server.paging import Paging
from ratchet.server.research_shapes import Task
from ratchet.server.routes import research as api_of_research

router = APIRouter()


@router.get("/research")
def runs(page: Page, pager: Paging, status: RunStatus | None = None) -> Response:
    found = operations.list_(page.api, pager, status)
    with page.api.read() as tx:
        rows = overview(tx, found.items)
    document = {
        "runs": [{**each.to_dict(), "spark": spark(each)} for each in rows],
        "next": found.next,
        "status": status,
        "statuses": list(RunStatus),
        "tasks": _tasks(),
    }
    return page.show("research.html", document, title="Research", live={} if pager.before is None else None)


# What is installed does not change while the server runs, and reading it all takes longer than the rest of the page.
@functools.cache
def _tasks() -> list[Task]:
    return api_of_research.tasks().items
