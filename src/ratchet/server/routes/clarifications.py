"""Questions to people about projects and protocols, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.kernel import NotFound
from ratchet.ledger import Transaction
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import get_protocol
from ratchet.ledger.questions import Clarification, find_clarification, list_clarifications
from ratchet.projects.clarifications import answer
from ratchet.protocols.views import clarification_record
from ratchet.server import protocol_shapes as shapes
from ratchet.server.fields import MAX_ID, Id, IdFilter, Limit, Text, link_next
from ratchet.server.problems import documented
from ratchet.server.service import Access, Api

router = APIRouter(tags=["clarifications"], responses=documented(401, 403, 404, 422))
Key = Annotated[str, Path(max_length=200, examples=["ci_provider"])]
After = Annotated[int, Query(ge=0, le=MAX_ID, description="only those asked after this one")]
Open = Annotated[bool, Query(alias="open", description="only those without an answer")]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    answer: JsonValue = Field(description="one of its options, if it has any", examples=["github"])
    answered_by: Text | None = Field(None, description="who answers, for the record")


@router.get("/projects/{project_id}/clarifications", response_model=list[shapes.Clarification])
def of_project(
    api: Api,
    request: Request,
    response: Response,
    project_id: Id,
    after: After = 0,
    limit: Limit = 50,
    open_only: Open = False,
) -> list[dict[str, Any]]:
    """Everything that was asked about the project and its protocols, in the order in which it was asked."""
    with api.read() as tx:
        get_project(tx, project_id)
        found = list_clarifications(
            tx, project_id=project_id, open_only=open_only, after=after, limit=limit + 1
        )
    return _page(request, response, found, limit)


@router.get("/projects/{project_id}/clarifications/{key:path}", response_model=shapes.Clarification)
def one_of_project(api: Api, project_id: Id, key: Key) -> dict[str, Any]:
    """A question about the project as a whole."""
    with api.read() as tx:
        return clarification_record(_of_project(tx, project_id, key))


@router.post(
    "/projects/{project_id}/clarifications/{key:path}",
    response_model=shapes.Clarification,
    responses=documented(400, 409),
)
def answer_of_project(api: Api, project_id: Id, key: Key, given: Answer) -> dict[str, Any]:
    """Answer it; what waited for this and for nothing else goes on. 409 when it was answered before."""
    with api.write() as tx:
        return _answer(api, tx, _of_project(tx, project_id, key), given)


@router.get("/protocols/{protocol_id}/clarifications", response_model=list[shapes.Clarification])
def of_protocol(
    api: Api,
    request: Request,
    response: Response,
    protocol_id: Id,
    after: After = 0,
    limit: Limit = 50,
    open_only: Open = False,
) -> list[dict[str, Any]]:
    """Everything that was asked about the protocol and its steps, in the order in which it was asked."""
    with api.read() as tx:
        get_protocol(tx, protocol_id)
        found = list_clarifications(tx, run_id=protocol_id, open_only=open_only, after=after, limit=limit + 1)
    return _page(request, response, found, limit)


@router.get("/protocols/{protocol_id}/clarifications/{key:path}", response_model=shapes.Clarification)
def one_of_protocol(api: Api, protocol_id: Id, key: Key, step_id: IdFilter = None) -> dict[str, Any]:
    """A question about the protocol, or about one of its steps."""
    with api.read() as tx:
        return clarification_record(_of_protocol(tx, protocol_id, key, step_id))


@router.post(
    "/protocols/{protocol_id}/clarifications/{key:path}",
    response_model=shapes.Clarification,
    responses=documented(400, 409),
)
def answer_of_protocol(
    api: Api, protocol_id: Id, key: Key, given: Answer, step_id: IdFilter = None
) -> dict[str, Any]:
    """Answer it; what waited for this and for nothing else goes on. 409 when it was answered before."""
    with api.write() as tx:
        return _answer(api, tx, _of_protocol(tx, protocol_id, key, step_id), given)


def _page(
    request: Request, response: Response, found: Sequence[Clarification], limit: int
) -> list[dict[str, Any]]:
    if len(found) > limit:
        link_next(request, response, "after", found[limit - 1].id, limit)
    return [clarification_record(each) for each in found[:limit]]


def _of_project(tx: Transaction, project_id: int, key: str) -> Clarification:
    get_project(tx, project_id)
    found = find_clarification(tx, project_id, key)
    if found is None:
        raise NotFound("clarification", repr(key))
    return found


def _of_protocol(tx: Transaction, protocol_id: int, key: str, step_id: int | None) -> Clarification:
    protocol = get_protocol(tx, protocol_id)
    found = find_clarification(tx, protocol.project_id, key, run_id=protocol_id, step_id=step_id)
    if found is None:
        raise NotFound("clarification", repr(key))
    return found


def _answer(api: Access, tx: Transaction, asked: Clarification, given: Answer) -> dict[str, Any]:
    said = answer(tx, api.runtime, asked.id, given.answer, by=given.answered_by or api.actor)
    return clarification_record(said)
