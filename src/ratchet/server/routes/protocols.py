"""Protocols: making them, looking at them, and everything that can be done with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.ledger import Artifact, Event, EventFilter
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger import events as ledger_events
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import get_protocol, list_protocols
from ratchet.protocols import actions
from ratchet.protocols.ci import ci_summary
from ratchet.protocols.codemachine import enqueue_import, import_workspace
from ratchet.protocols.operations import PROTOCOL_OPERATIONS
from ratchet.protocols.views import ProtocolAnswer, spec_record
from ratchet.runtime import get_job
from ratchet.runtime.operations.jobs import JobAnswer
from ratchet.server import protocol_shapes as shapes
from ratchet.server import shapes as common
from ratchet.server.fields import Cut, Id, Page, Paging, Text
from ratchet.server.operation import add_operations
from ratchet.server.problems import documented
from ratchet.server.routes.events import NO_STORE, EventStream, Start, frames
from ratchet.server.service import Api

router = APIRouter(tags=["protocols"], responses=documented(401, 403, 422))
ProtocolName = Annotated[
    Text, Field(description="also the name of its branch and its folder", examples=["0007-add-login"])
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class NewProtocol(_Body):
    protocol_name: ProtocolName
    status: Literal["pending", "planned"] = Field(
        "pending", description="`planned` if somebody else has planned it and adds the steps"
    )
    base_branch: Text | None = Field(None, description="the project's, if not given")
    description: str | None = Field(
        None, max_length=100_000, description="what is wanted; the planner reads it"
    )
    automatic: bool | None = Field(
        None, description="whether ready steps run by themselves; as the settings say, if null"
    )
    simulated: bool = Field(False, description="allow recorded sessions; marks the protocol")
    template_config: dict[str, JsonValue] | None = None
    template_source: dict[str, JsonValue] | None = None
    worktree_path: None = Field(None, description="only null: Ratchet chooses it")
    protocol_root: None = Field(None, description="only null: it is `.protocols/NAME` on the branch")


class Import(_Body):
    protocol_name: ProtocolName
    workspace_path: str = Field(
        min_length=1,
        max_length=4096,
        description="of the workspace, from the clone on; the operator may name any place of this machine",
        examples=["."],
    )
    base_branch: Text | None = Field(None, description="the project's, if not given")
    description: str | None = Field(None, max_length=100_000)
    workflow: Text | None = Field(None, description="which of its workflows, if it has several")
    track: Text | None = None
    conditions: list[Text] | None = None
    enqueue: bool = Field(False, description="have a worker do it")


@router.post(
    "/projects/{project_id}/protocols",
    response_model=shapes.Protocol,
    responses=documented(400, 404, 409),
)
def create(api: Api, project_id: Id, new: NewProtocol, response: Response) -> ProtocolAnswer:
    """A new protocol; nothing happens before it is started. 409 when its name is taken."""
    given = new.model_dump(exclude={"protocol_name", "status", "worktree_path", "protocol_root"})
    with api.write() as tx:
        run_id = actions.create_protocol(
            tx, api.runtime, project_id, new.protocol_name, planned=new.status == "planned", **given
        )
        found = ProtocolAnswer.of(get_protocol(tx, run_id))
    response.headers["Location"] = f"/protocols/{run_id}"
    return found


@router.get(
    "/projects/{project_id}/protocols", response_model=list[shapes.Protocol], responses=documented(404)
)
def of_project(api: Api, project_id: Id, pager: Paging) -> list[ProtocolAnswer]:
    """Newest first."""
    with api.read() as tx:
        get_project(tx, project_id)
        found = list_protocols(tx, project_id=project_id, before=pager.before, limit=pager.one_more)
    return [ProtocolAnswer.of(each, brief=True) for each in pager.cut(found, number="run_id").items]


@router.post("/projects/{project_id}/codemachine/import", responses=documented(400, 404, 409, 502))
def import_codemachine(api: Api, project_id: Id, wanted: Import) -> shapes.Imported:
    """Make a planned protocol of a CodeMachine workspace, or nothing at all: 400 says what is wrong with it."""
    given = wanted.model_dump(exclude={"enqueue"}) | {"inside": not api.caller.is_operator}
    if wanted.enqueue:
        with api.write() as tx:
            job = JobAnswer.of(get_job(tx, enqueue_import(tx, api.runtime, project_id, **given)))
        return shapes.Imported(message="the import is queued", protocol_run=None, job=job)
    run_id = import_workspace(api.runtime, project_id, **given, actor=api.actor, request_id=api.request_id)
    with api.read() as tx:
        found = ProtocolAnswer.of(get_protocol(tx, run_id))
    return shapes.Imported(message="imported", protocol_run=found, job=None)


@router.get("/protocols/{protocol_id}/spec", response_model=shapes.Spec, responses=documented(404))
def spec(api: Api, protocol_id: Id) -> dict[str, Any]:
    """Its spec, and whether that holds."""
    with api.read() as tx:
        return spec_record(get_protocol(tx, protocol_id))


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


add_operations(router, PROTOCOL_OPERATIONS)
