"""The ledger's events, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated

from fastapi import Depends, Header, HTTPException, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.types import Receive, Scope, Send

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import Event, EventFilter, follow_async
from ratchet.ledger.events import last_id
from ratchet.observe.logs import logger
from ratchet.operations import MAX_ID, Operation
from ratchet.runtime.operations.runs import EVENT_OPERATIONS, event_filter
from ratchet.server.operation import endpoint_of, router_of, shown
from ratchet.server.service import Access, Api, Service

router = router_of("events", EVENT_OPERATIONS)
# What a stream takes, too.
Where = Annotated[
    EventFilter, Depends(endpoint_of(Operation(function=event_filter, name="events", api="GET /events")))
]
SinceQuery = Annotated[int | None, Query(ge=0, le=MAX_ID, description="only events above this number")]
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
    Raises `TooManyOpen` before it begins, for a caller who has as many as one may have.
    """

    media_type = "text/event-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service
        with service.open_requests.stream(scope["state"]["caller"]):
            await super().__call__(scope, receive, send)

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


def _start(api: Api, since: SinceQuery = None, last_event_id: LastEventId = None) -> int:
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
    api: Access, after: int, where: EventFilter, translate: Callable[[Event], object] = lambda event: event
) -> AsyncIterator[bytes]:
    """The events that the caller may see, each as `translate` makes it."""
    async with aclosing(visible(api, after, where)) as events:
        async for event in events:
            yield format_sse_event(id=str(event.id), data_str=shown(translate(event)).model_dump_json())


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
