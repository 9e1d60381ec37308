"""Protocols, their steps and their specs: the requests of their operations, and the events of one as they happen."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from ratchet.ledger import EventFilter
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols.operations import PROTOCOL_OPERATIONS
from ratchet.protocols.step_operations import ABOUT_PROTOCOLS, SPEC_OPERATIONS, STEP_OPERATIONS
from ratchet.protocols.views import ProtocolEvent
from ratchet.server.fields import Id
from ratchet.server.operation import router_of
from ratchet.server.problems import documented
from ratchet.server.routes.events import NO_STORE, EventStream, Start, frames
from ratchet.server.service import Api

_ERRORS = documented(400, 401, 403, 422)
router = router_of(
    "protocols", (*PROTOCOL_OPERATIONS, *ABOUT_PROTOCOLS), responses=documented(400, 401, 403, 422, 502)
)
steps = router_of("steps", STEP_OPERATIONS, responses=_ERRORS)
specs = router_of("specs", SPEC_OPERATIONS, responses=_ERRORS)


def _exists(api: Api, protocol_id: Id) -> None:
    with api.read() as tx:
        get_protocol(tx, protocol_id)


@router.get(
    "/protocols/{protocol_id}/events/stream", response_class=EventStream, responses=documented(404, 503)
)
async def event_stream(
    api: Api, protocol_id: Id, _: Annotated[None, Depends(_exists)], after: Start
) -> EventStream:
    """Every event of the protocol after `Last-Event-ID` or `since`, as it happens."""
    where = EventFilter(run_id=protocol_id)
    return EventStream(frames(api, after, where, ProtocolEvent.of), headers=NO_STORE)
