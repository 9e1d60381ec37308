"""The steps of protocols: listing, adding, running, reviewing and approving them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.ledger.protocol_steps import get_protocol_step, list_protocol_steps
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols import actions
from ratchet.protocols.adding import add_step
from ratchet.protocols.views import step_record
from ratchet.runtime import get_job
from ratchet.runtime.operations.jobs import JobAnswer
from ratchet.server import protocol_shapes as shapes
from ratchet.server.fields import Id, Text
from ratchet.server.paging import MAX_LIMIT, Limit, link_next
from ratchet.server.problems import documented
from ratchet.server.service import Api

router = APIRouter(tags=["steps"], responses=documented(401, 403, 404, 422))
# What both databases hold in the column.
_LAST_INDEX = 2**31 - 1
After = Annotated[int, Query(ge=-1, le=_LAST_INDEX, description="only steps with a higher index")]
Policy = dict[str, JsonValue]


class NewStep(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    step_index: int = Field(ge=0, le=_LAST_INDEX, examples=[1])
    step_name: Text = Field(description="its file is NAME.md in the protocol's folder", examples=["01-build"])
    step_type: Text = Field(description="setup, work or qa", examples=["work"])
    status: Literal["pending"] = "pending"
    model: Text | None = None
    engine_id: Text | None = None
    policy: Policy | list[Policy] | None = Field(None, description="what a loop or trigger module does")
    summary: str | None = Field(None, max_length=10_000)
    depends_on: list[Text] = Field([], description="names of steps; none means those before it")


@router.get("/protocols/{protocol_id}/steps", response_model=list[shapes.Step])
def steps(
    api: Api,
    request: Request,
    response: Response,
    protocol_id: Id,
    after: After = -1,
    limit: Limit = MAX_LIMIT,
) -> list[dict[str, Any]]:
    """In their order."""
    with api.read() as tx:
        get_protocol(tx, protocol_id)
        found = [each for each in list_protocol_steps(tx, protocol_id) if each.step_index > after]
    if len(found) > limit:
        link_next(request, response, "after", found[limit - 1].step_index, limit)
    return [step_record(each) for each in found[:limit]]


@router.post("/protocols/{protocol_id}/steps", response_model=shapes.Step, responses=documented(400, 409))
def add(api: Api, protocol_id: Id, new: NewStep, response: Response) -> dict[str, Any]:
    """Add a pending step. 409 when its name or index is taken, or the protocol is being planned or has ended."""
    policies = new.policy if isinstance(new.policy, list) else [new.policy] if new.policy else []
    with api.write() as tx:
        step_id = add_step(
            tx,
            protocol_id,
            name=new.step_name,
            policies=policies,
            **new.model_dump(exclude={"step_name", "status", "policy"}),
        )
        found = step_record(get_protocol_step(tx, step_id))
    response.headers["Location"] = f"/steps/{step_id}"
    return found


@router.post("/steps/{step_id}/actions/run", responses=documented(409))
def run(api: Api, step_id: Id) -> shapes.Accepted:
    """Run it now. 409 unless it is pending, blocked or failed; of many who ask at once, one succeeds."""
    with api.write() as tx:
        job = JobAnswer.of(get_job(tx, actions.run_step(tx, api.runtime, step_id)))
        name = get_protocol_step(tx, step_id).name
    return shapes.Accepted(message=f"{name} is in line", job=job)


@router.post("/steps/{step_id}/actions/run_qa", responses=documented(409))
def run_qa(api: Api, step_id: Id) -> shapes.Accepted:
    """Have its newest commit judged once more. 409 when it is running, completed or cancelled."""
    with api.write() as tx:
        job = JobAnswer.of(get_job(tx, actions.run_qa(tx, api.runtime, step_id)))
        name = get_protocol_step(tx, step_id).name
    return shapes.Accepted(message=f"a review of {name} is in line", job=job)


@router.post("/steps/{step_id}/actions/approve", response_model=shapes.Step, responses=documented(409))
def approve(api: Api, step_id: Id) -> dict[str, Any]:
    """Complete it in the place of its judges. 409 when it is running, completed or cancelled."""
    with api.write() as tx:
        actions.approve_step(tx, api.runtime, step_id, by=api.actor)
        return step_record(get_protocol_step(tx, step_id))
