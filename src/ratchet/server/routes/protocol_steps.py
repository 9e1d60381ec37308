"""The steps of protocols: listing, adding, running, reviewing and approving them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.ledger.protocols import get_protocol, get_protocol_step, list_protocol_steps
from ratchet.protocols.actions import add_step
from ratchet.protocols.operations import STEP_OPERATIONS
from ratchet.protocols.views import StepAnswer
from ratchet.server import protocol_shapes as shapes
from ratchet.server.fields import MAX_LIMIT, Id, Limit, Text, link_next
from ratchet.server.operation import add_operations
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
) -> list[StepAnswer]:
    """In their order."""
    with api.read() as tx:
        get_protocol(tx, protocol_id)
        found = [each for each in list_protocol_steps(tx, protocol_id) if each.step_index > after]
    if len(found) > limit:
        link_next(request, response, "after", found[limit - 1].step_index, limit)
    return [StepAnswer.of(each) for each in found[:limit]]


@router.post("/protocols/{protocol_id}/steps", response_model=shapes.Step, responses=documented(400, 409))
def add(api: Api, protocol_id: Id, new: NewStep, response: Response) -> StepAnswer:
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
        found = StepAnswer.of(get_protocol_step(tx, step_id))
    response.headers["Location"] = f"/steps/{step_id}"
    return found


add_operations(router, STEP_OPERATIONS)
