"""The ledger's events, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.types import Send

from ratchet.kernel import LedgerUnavailable, Misuse
from ratchet.ledger import Event, EventFilter, follow_async
from ratchet.ledger.events import last_id, latest
from ratchet.ledger.events import since as events_since
from ratchet.observe.logs import logger
from ratchet.server import shapes
from ratchet.server.fields import MAX_ID, Cut, IdFilter, Pager, Paging, TextFilter
from ratchet.server.service import Access, Api, Service

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
) -> EventFilter:
    if kind is not None and type is not None:
        raise Misuse("kind and type cannot be combined", hint="give the one or the other")
    return EventFilter(
        project_id=api.caller.project_id or project_id,
        run_id=run_id,
        step_id=step_id,
        attempt_id=attempt_id,
        job_id=job_id,
        type="setup_*" if kind else type,
    )


Where = Annotated[EventFilter, Depends(_filter)]


@router.get("/events", response_model=list[shapes.Event])
def list_events(api: Api, pager: Paging, where: Where, since: Since = None) -> Sequence[Event]:
    """Newest first; with `since` oldest first. A `type` such as `run.*` or `setup_*` means every type that starts so.

    Events of projects whose token was not shown are left out, so a page may be short: `Link` says whether more follow.
    """
    return page_of_events(api, pager, where, since).items


def page_of_events(api: Access, pager: Pager, where: EventFilter, since: int | None = None) -> Cut[Event]:
    if since is not None and pager.before is not None:
        raise Misuse("before and since cannot be combined", hint="use before to go back, since to continue")
    with api.read() as tx:
        if since is None:
            found = latest(tx.connection, before=pager.before, where=where, limit=pager.one_more)
        else:
            found = events_since(tx.connection, since, where=where, limit=pager.one_more)
        hidden = api.caller.hidden(tx, (event.project_id for event in found))
    cursor = "before" if since is None else "since"
    return pager.without(found, lambda event: event.project_id in hidden, cursor=cursor)


_log = logger(__name__)
_KEEP_ALIVE_SECONDS = 15.0
_PATIENCE_SECONDS = 1.0
NO_STORE = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

LastEventId = Annotated[
    int | None, Header(ge=0, le=MAX_ID, description="the last event seen; stronger than `since`")
]


class EventStream(StreamingResponse):
    """Server-sent events with a comment now and then, so that nothing on the way takes silence for death.

    FastAPI's own answer for generators does so too, but logs a traceback when a caller leaves in the middle of a burst.
    """

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        keeping_alive = asyncio.create_task(_keep_alive(send))
        try:
            await super().stream_response(send)
        finally:
            keeping_alive.cancel()


async def _keep_alive(send: Send) -> None:
    while True:
        await asyncio.sleep(_KEEP_ALIVE_SECONDS)
        await send({"type": "http.response.body", "body": KEEPALIVE_COMMENT, "more_body": True})


def refuse_if_stopping(service: Service) -> None:
    if service.stopping.is_set():
        raise HTTPException(503, "the server is shutting down", headers={"Retry-After": "2"})


def _start(api: Api, since: Since = None, last_event_id: LastEventId = None) -> int:
    """The number after which to begin: what the caller has seen, else the newest event of now."""
    refuse_if_stopping(api.service)
    if last_event_id is not None:
        return last_event_id
    if since is not None:
        return since
    with api.read() as tx:
        return last_id(tx.connection)


Start = Annotated[int, Depends(_start)]


@router.get("/events/stream", response_class=EventStream)
async def stream(api: Api, where: Where, after: Start) -> EventStream:
    """Every event after `Last-Event-ID` or `since`, none missed and none twice, for as long as the caller listens.

    Events of projects whose token was not shown are left out.
    """
    return EventStream(frames(api, after, where), headers=NO_STORE)


async def frames(
    api: Access, after: int, where: EventFilter, shape: type[shapes.Event] = shapes.Event
) -> AsyncIterator[bytes]:
    """The events that the caller may see, each in `shape`."""
    async with aclosing(visible(api, after, where)) as events:
        async for event in events:
            shown = shape.model_validate(event).model_dump_json()
            yield format_sse_event(id=str(event.id), data_str=shown)


async def visible(api: Access, after: int, where: EventFilter) -> AsyncGenerator[Event, None]:
    """The events that the caller may see, as they happen."""
    known: dict[int | None, bool] = {}
    async with aclosing(following(api.service, after, where)) as events:
        async for event in events:
            if event.project_id not in known:
                known[event.project_id] = await _hidden(api, event.project_id)
            if not known[event.project_id]:
                yield event


async def _hidden(api: Access, project_id: int | None) -> bool:
    """Whether the caller may not hear of a project. A database that is away is waited for."""
    while not api.service.stopping.is_set():
        try:
            return await run_in_threadpool(_look, api, project_id)
        except LedgerUnavailable as error:
            _log.warning("an event stream waits for the database", error=str(error))
            await asyncio.sleep(_PATIENCE_SECONDS)
    return True


def _look(api: Access, project_id: int | None) -> bool:
    with api.read() as tx:
        return bool(api.caller.hidden(tx, [project_id]))


async def following(service: Service, after: int, where: EventFilter) -> AsyncGenerator[Event, None]:
    """The events until the service stops. A database that is away is waited for: the caller need not come again."""
    stop = service.stopping
    while not stop.is_set():
        try:
            events = follow_async(service.runtime.ledger, after, where=where, stop=stop)
            async with aclosing(events):
                async for event in events:
                    after = event.id
                    yield event
        except LedgerUnavailable as error:
            _log.warning("an event stream waits for the database", error=str(error))
            await asyncio.sleep(_PATIENCE_SECONDS)
