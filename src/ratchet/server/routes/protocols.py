"""Protocols, their steps and their specs: what is no operation, such as streams, and the requests of those that are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from ratchet.ledger import Artifact, Event, EventFilter
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger import events as ledger_events
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols.ci import ci_summary
from ratchet.protocols.operations import PROTOCOL_OPERATIONS
from ratchet.protocols.spec import spec_schema
from ratchet.protocols.spec.audit import start_audit
from ratchet.protocols.step_operations import ABOUT_PROTOCOLS, SPEC_OPERATIONS, STEP_OPERATIONS
from ratchet.runtime.operations.jobs import AcceptedAnswer, JobAnswer
from ratchet.server import protocol_shapes as shapes
from ratchet.server import shapes as common
from ratchet.server.fields import MAX_ID, Cut, Id, Page, Paging
from ratchet.server.operation import add_operations, router_of, shape_of
from ratchet.server.problems import documented
from ratchet.server.project_scope import enter
from ratchet.server.routes.events import NO_STORE, EventStream, Start, frames
from ratchet.server.service import Api

_ERRORS = documented(400, 401, 403, 422)
router = APIRouter(tags=["protocols"], responses=documented(400, 401, 403, 422, 502))
steps = router_of("steps", STEP_OPERATIONS, responses=_ERRORS)
specs = router_of("specs", SPEC_OPERATIONS, responses=_ERRORS)


class Audit(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    project_id: int | None = Field(None, ge=1, le=MAX_ID, description="only protocols of this project")
    protocol_id: int | None = Field(None, ge=1, le=MAX_ID, description="only this protocol")
    backfill: bool = Field(False, description="make specs from files for protocols that have none")
    interval_seconds: float | None = Field(None, gt=0, le=31_536_000, description="audit again, so often")


@specs.get("/specs/schema")
def schema() -> dict[str, Any]:
    """The JSON Schema of specs."""
    return spec_schema()


@specs.post("/specs/audit", response_model=shape_of(AcceptedAnswer), responses=documented(404))
def audit(api: Api, wanted: Audit) -> AcceptedAnswer:
    """Have specs checked against what is in the repositories. For the operator alone."""
    with api.write() as tx:
        if wanted.project_id is not None:
            enter(api, tx, "project", wanted.project_id)
        if wanted.protocol_id is not None:
            enter(api, tx, "run", wanted.protocol_id)
        return AcceptedAnswer(
            "the audit is queued", JobAnswer.at(tx, start_audit(tx, api.runtime, **wanted.model_dump()))
        )


@router.get("/protocols/{protocol_id}/ci", response_model=shapes.Ci, responses=documented(404))
def ci(api: Api, protocol_id: Id) -> dict[str, Any]:
    """What CI says, by commit and by check."""
    with api.read() as tx:
        return ci_summary(tx, get_protocol(tx, protocol_id))


@router.get(
    "/protocols/{protocol_id}/events", response_model=list[shapes.ProtocolEvent], responses=documented(404)
)
def events(api: Api, protocol_id: Id, pager: Paging) -> Sequence[Event]:
    """Newest first, in the order in which they happened."""
    with api.read() as tx:
        get_protocol(tx, protocol_id)
        found = ledger_events.latest(
            tx.connection, before=pager.before, where=EventFilter(run_id=protocol_id), limit=pager.one_more
        )
    return pager.cut(found).items


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
    return EventStream(frames(api, after, where, shapes.ProtocolEvent), headers=NO_STORE)


@router.get(
    "/protocols/{protocol_id}/artifacts", response_model=Page[common.Artifact], responses=documented(404)
)
def artifacts(api: Api, protocol_id: Id, pager: Paging) -> Cut[Artifact]:
    """What its attempts left, newest first; `/artifacts/SHA256` has the content."""
    with api.read() as tx:
        get_protocol(tx, protocol_id)
        return pager.cut(
            ledger_artifacts.latest(tx, run_id=protocol_id, before=pager.before, limit=pager.one_more)
        )


add_operations(router, (*PROTOCOL_OPERATIONS, *ABOUT_PROTOCOLS))
