"""The ledger's events, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from ratchet.kernel import Misuse
from ratchet.ledger import Event, Filter
from ratchet.ledger.events import latest
from ratchet.ledger.events import since as events_since
from ratchet.server import shapes
from ratchet.server.fields import MAX_ID, IdFilter, TextFilter
from ratchet.server.paging import Paging
from ratchet.server.service import Api

router = APIRouter(tags=["events"])

Since = Annotated[int | None, Query(ge=0, le=MAX_ID, description="only events above this number")]


async def _filter(
    project_id: IdFilter = None,
    run_id: IdFilter = None,
    step_id: IdFilter = None,
    job_id: IdFilter = None,
    type: TextFilter = None,
) -> Filter:
    return Filter(project_id=project_id, run_id=run_id, step_id=step_id, job_id=job_id, type=type)


Where = Annotated[Filter, Depends(_filter)]


@router.get("/events", response_model=list[shapes.Event])
def list_events(api: Api, pager: Paging, where: Where, since: Since = None) -> Sequence[Event]:
    """Newest first; with `since` oldest first. A `type` such as `run.*` means every type that starts so."""
    if since is not None and pager.before is not None:
        raise Misuse("before and since cannot be combined", hint="use before to go back, since to go on")
    with api.read() as tx:
        if since is None:
            found = latest(tx.connection, before=pager.before, where=where, limit=pager.one_more)
            return pager.cut(found).items
        found = events_since(tx.connection, since, where=where, limit=pager.one_more)
        return pager.cut(found, cursor="since").items
