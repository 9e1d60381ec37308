"""Protocols: making them, looking at them, and everything that can be done with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.kernel import RunStatus
from ratchet.ledger import Artifact, Event, Filter, Transaction
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger import events as ledger_events
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import Protocol, get_protocol, list_protocols
from ratchet.protocols import actions
from ratchet.protocols.ci import ci_summary
from ratchet.protocols.codemachine import import_workspace
from ratchet.protocols.import_job import enqueue_import
from ratchet.protocols.views import protocol_record, spec_record
from ratchet.runtime import cancel_run, get_job, pause_run, resume_run
from ratchet.runtime.operations.jobs import JobAnswer
from ratchet.server import protocol_shapes as shapes
from ratchet.server import shapes as common
from ratchet.server.fields import Id, IdFilter, Text
from ratchet.server.paging import Cut, Page, Pager, Paging
from ratchet.server.problems import documented
from ratchet.server.routes.stream import NO_STORE, EventStream, Start, frames
from ratchet.server.service import Access, Api

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
def create(api: Api, project_id: Id, new: NewProtocol, response: Response) -> dict[str, Any]:
    """A new protocol; nothing happens before it is started. 409 when its name is taken."""
    given = new.model_dump(exclude={"protocol_name", "status", "worktree_path", "protocol_root"})
    with api.write() as tx:
        run_id = actions.create_protocol(
            tx, api.runtime, project_id, new.protocol_name, planned=new.status == "planned", **given
        )
        found = protocol_record(get_protocol(tx, run_id))
    response.headers["Location"] = f"/protocols/{run_id}"
    return found


@router.get(
    "/projects/{project_id}/protocols", response_model=list[shapes.Protocol], responses=documented(404)
)
def of_project(api: Api, project_id: Id, pager: Paging) -> list[dict[str, Any]]:
    """Newest first."""
    with api.read() as tx:
        get_project(tx, project_id)
        found = list_protocols(tx, project_id=project_id, before=pager.before, limit=pager.one_more)
    return [protocol_record(each, brief=True) for each in pager.cut(found, number="run_id").items]


@router.post("/projects/{project_id}/codemachine/import", responses=documented(400, 404, 409, 502))
def import_codemachine(api: Api, project_id: Id, wanted: Import) -> shapes.Imported:
    """Make a planned protocol of a CodeMachine workspace, or nothing at all: 400 says what is wrong with it."""
    given = wanted.model_dump(exclude={"enqueue"}) | {"inside": not api.caller.is_operator}
    if wanted.enqueue:
        with api.write() as tx:
            job = JobAnswer.of(get_job(tx, enqueue_import(tx, api.runtime, project_id, **given)))
        return shapes.Imported(message="the import is in line", protocol_run=None, job=job)
    run_id = import_workspace(api.runtime, project_id, **given, actor=api.actor, request_id=api.request_id)
    with api.read() as tx:
        found = protocol_record(get_protocol(tx, run_id))
    return shapes.Imported(message="imported", protocol_run=shapes.Protocol.model_validate(found), job=None)


@router.get("/protocols", response_model=list[shapes.Protocol])
def protocols(
    api: Api,
    pager: Paging,
    project_id: IdFilter = None,
    unfinished: Annotated[bool, Query(description="only those that have not ended")] = False,
) -> list[dict[str, Any]]:
    """Newest first, of all projects. Those of projects whose token was not shown are left out."""
    with api.read() as tx:
        page = page_of_protocols(api, tx, pager, project_id=project_id, unfinished=unfinished)
    return [protocol_record(each, brief=True) for each in page.items]


def page_of_protocols(
    api: Access,
    tx: Transaction,
    pager: Pager,
    *,
    project_id: int | None = None,
    unfinished: bool = False,
    status: RunStatus | None = None,
) -> Cut[Protocol]:
    found = list_protocols(
        tx,
        project_id=api.caller.project_id or project_id,
        before=pager.before,
        limit=pager.one_more,
        unfinished=unfinished,
        status=status,
    )
    hidden = api.caller.hidden(tx, (each.project_id for each in found))
    return pager.without(found, lambda each: each.project_id in hidden, number="run_id")


@router.get("/protocols/{protocol_id}", response_model=shapes.Protocol, responses=documented(404))
def protocol(api: Api, protocol_id: Id) -> dict[str, Any]:
    """One protocol: its status, its reason if it stands, its branch and its pull request."""
    with api.read() as tx:
        return protocol_record(get_protocol(tx, protocol_id))


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
            tx.connection, before=pager.before, where=Filter(run_id=protocol_id), limit=pager.one_more
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
    where = Filter(run_id=protocol_id)
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


@router.post("/protocols/{protocol_id}/actions/start", responses=documented(404, 409))
def start(api: Api, protocol_id: Id) -> shapes.Accepted:
    """Plan it, or carry out the plan that it has. 409 unless it is pending, planned or paused.

    Without `automatic` no step begins by itself: a protocol that has its plan is then running, and waits for
    `run_next_step`. So it can be asked for again when no answer came: nothing is planned or begun twice.
    """
    with api.write() as tx:
        job = JobAnswer.of(get_job(tx, actions.start_protocol(tx, api.runtime, protocol_id)))
        begun = get_protocol(tx, protocol_id)
    if begun.status is RunStatus.PLANNING:
        return shapes.Accepted(message="planning is in line", job=job)
    told = (
        "the protocol is in line" if begun.automatic else "its steps are started by hand: see run_next_step"
    )
    return shapes.Accepted(message=told, job=job)


@router.post(
    "/protocols/{protocol_id}/actions/pause", response_model=shapes.Protocol, responses=documented(404, 409)
)
def pause(api: Api, protocol_id: Id) -> dict[str, Any]:
    """Stand still; what is recorded stays. 409 when it has ended. Pausing it again changes nothing."""
    return _act(api, pause_run, protocol_id)


@router.post(
    "/protocols/{protocol_id}/actions/resume", response_model=shapes.Protocol, responses=documented(404, 409)
)
def resume(api: Api, protocol_id: Id) -> dict[str, Any]:
    """Go on with a paused or blocked protocol; 409 for any other."""
    return _act(api, resume_run, protocol_id)


@router.post(
    "/protocols/{protocol_id}/actions/cancel", response_model=shapes.Protocol, responses=documented(404, 409)
)
def cancel(api: Api, protocol_id: Id) -> dict[str, Any]:
    """End it for good, with every step that has not ended. Cancelling it again changes nothing."""
    return _act(api, cancel_run, protocol_id)


@router.post("/protocols/{protocol_id}/actions/run_next_step", responses=documented(404, 409))
def run_next_step(api: Api, protocol_id: Id) -> shapes.Accepted:
    """Run the first step that waits, is blocked or has failed. 404 when there is none."""
    with api.write() as tx:
        step, job_id = actions.run_next_step(tx, api.runtime, protocol_id)
        return shapes.Accepted(message=f"{step.name} is in line", job=JobAnswer.of(get_job(tx, job_id)))


@router.post("/protocols/{protocol_id}/actions/retry_latest", responses=documented(404, 409))
def retry_latest(api: Api, protocol_id: Id) -> shapes.Accepted:
    """Try the last step that failed or is blocked once more. 404 when there is none."""
    with api.write() as tx:
        step, job_id = actions.retry_latest(tx, api.runtime, protocol_id)
        return shapes.Accepted(message=f"{step.name} is in line again", job=JobAnswer.of(get_job(tx, job_id)))


@router.post("/protocols/{protocol_id}/actions/open_pr", responses=documented(404, 409))
def open_pr(api: Api, protocol_id: Id) -> shapes.Accepted:
    """Push the branch and open its pull request, or bring the one that there is up to date."""
    with api.write() as tx:
        job = JobAnswer.of(get_job(tx, actions.open_pull_request(tx, api.runtime, protocol_id)))
    return shapes.Accepted(message="the pull request is in line", job=job)


def _act(api: Access, action: Callable[..., None], protocol_id: int) -> dict[str, Any]:
    with api.write() as tx:
        get_protocol(tx, protocol_id)
        action(tx, api.runtime, protocol_id)
        return protocol_record(get_protocol(tx, protocol_id))
