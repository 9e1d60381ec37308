"""Attempts: what each came to, its evidence, and its log as it is written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import FileResponse
from fastapi.sse import format_sse_event

from ratchet.kernel import NotFound
from ratchet.ledger import Transaction
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger.ledger import follow_log, log_line
from ratchet.ledger.runs import get_attempt
from ratchet.loop import CHANGE_FILE
from ratchet.operations import MAX_ID
from ratchet.protocols.step_operations import ATTEMPT_OPERATIONS
from ratchet.server.fields import Id
from ratchet.server.operation import router_of
from ratchet.server.problems import documented
from ratchet.server.routes.artifacts import UNTRUSTED, ContentResponse
from ratchet.server.routes.events import NO_STORE, EventStream, LastEventId, refuse_if_stopping
from ratchet.server.service import Access, Api

router = router_of("attempts", ATTEMPT_OPERATIONS, responses=documented(401, 403, 404, 422))
Offset = Annotated[
    int, Query(ge=0, le=MAX_ID, description="where to continue: `next_offset` of the last part")
]


@router.get(
    "/attempts/{attempt_id}/diff",
    response_class=FileResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def diff(api: Api, attempt_id: Id) -> FileResponse:
    """What its author changed, kept or not, as a patch. 404 while there is nothing."""
    with api.read() as tx:
        get_attempt(tx, attempt_id)
        change = change_of(tx, attempt_id)
    try:
        content = api.ledger.artifacts.open(change or "")
    except NotFound:
        raise NotFound("diff of attempt", attempt_id) from None
    return ContentResponse(content, media_type="text/plain", headers=UNTRUSTED)


def change_of(tx: Transaction, attempt_id: int) -> str | None:
    """The hash of the patch of an attempt, if there is one yet."""
    found = [each for each in ledger_artifacts.of_attempt(tx, attempt_id) if each.name == CHANGE_FILE]
    return found[-1].sha256 if found else None


def _start(api: Api, attempt_id: Id, offset: Offset = 0, last_event_id: LastEventId = None) -> int:
    refuse_if_stopping(api.service)
    with api.read() as tx:
        get_attempt(tx, attempt_id)
    return offset if last_event_id is None else last_event_id


@router.get("/attempts/{attempt_id}/log/stream", response_class=EventStream, responses=documented(503))
async def log_stream(api: Api, attempt_id: Id, after: Annotated[int, Depends(_start)]) -> EventStream:
    """The log as it is written, line by line, after `Last-Event-ID` or `offset`. The last message is `event: end`."""
    return EventStream(_lines(api, attempt_id, after), headers=NO_STORE)


async def _lines(api: Access, attempt_id: int, after: int) -> AsyncIterator[bytes]:
    stop = api.service.stopping
    async with aclosing(follow_log(api.ledger, attempt_id, after, stop=stop)) as events:
        async for event in events:
            after = event.id
            line = json.dumps({"offset": after, "text": log_line(event)}, ensure_ascii=False)
            yield format_sse_event(id=str(after), data_str=line)
    if not stop.is_set():
        yield format_sse_event(event="end", id=str(after), data_str="{}")
