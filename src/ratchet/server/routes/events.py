"""The ledger's events, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query

from ratchet.kernel import Misuse
from ratchet.ledger import Event, Filter
from ratchet.ledger.events import latest
from ratchet.ledger.events import since as events_since
from ratchet.server import shapes
from ratchet.server.fields import MAX_ID, Cut, IdFilter, Pager, Paging, TextFilter
from ratchet.server.service import Access, Api

router = APIRouter(tags=["events"])

Since = Annotated[int | None, Query(ge=0, le=MAX_ID, description="only events above this number")]


Kind = Annotated[
    Literal["onboarding"] | None, Query(description="`onboarding` is short for the type `setup_*`")
]


async def _filter(
    api: Api,
    project_id: IdFilter = None,
    run_id: IdFilter = None,
    step_id: IdFilter = None,
    attempt_id: IdFilter = None,
    job_id: IdFilter = None,
    type: TextFilter = None,
    kind: Kind = None,
) -> Filter:
    if kind is not None and type is not None:
        raise Misuse("kind and type cannot be combined", hint="give the one or the other")
    return Filter(
        project_id=api.caller.project_id or project_id,
        run_id=run_id,
        step_id=step_id,
        attempt_id=attempt_id,
        job_id=job_id,
        type="setup_*" if kind else type,
    )


Where = Annotated[Filter, Depends(_filter)]


@router.get("/events", response_model=list[shapes.Event])
def list_events(api: Api, pager: Paging, where: Where, since: Since = None) -> Sequence[Event]:
    """Newest first; with `since` oldest first. A `type` such as `run.*` or `setup_*` means every type that starts so.

    Events of projects whose token was not shown are left out, so a page may be short: `Link` says whether more follow.
    """
    return page_of_events(api, pager, where, since).items


def page_of_events(api: Access, pager: Pager, where: Filter, since: int | None = None) -> Cut[Event]:
    if since is not None and pager.before is not None:
        raise Misuse("before and since cannot be combined", hint="use before to go back, since to go on")
    with api.read() as tx:
        if since is None:
            found = latest(tx.connection, before=pager.before, where=where, limit=pager.one_more)
        else:
            found = events_since(tx.connection, since, where=where, limit=pager.one_more)
        hidden = api.caller.hidden(tx, (event.project_id for event in found))
    cursor = "before" if since is None else "since"
    return pager.without(found, lambda event: event.project_id in hidden, cursor=cursor)
