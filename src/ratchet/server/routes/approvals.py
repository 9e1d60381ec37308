"""Approvals: what waits for a person, and the answers."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ratchet.judges import decide
from ratchet.ledger import approvals as ledger_approvals
from ratchet.ledger.approvals import ApprovalStatus, get_approval, list_approvals
from ratchet.ledger.owners import projects_of_runs
from ratchet.server.fields import Id, IdFilter, Json, Moment, Shape
from ratchet.server.paging import Cut, Page, Paging
from ratchet.server.service import Access, Api

router = APIRouter(tags=["approvals"])


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    comment: str | None = Field(None, max_length=10_000, description="why, for the record")
    by: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="who decides, if not the caller as the ledger calls it",
    )


class Approval(Shape):
    id: int
    run_id: int | None
    attempt_id: int | None
    subject: str
    question: str
    data: Json
    status: ApprovalStatus
    comment: str | None
    decided_by: str | None
    created_at: Moment
    decided_at: Moment | None


@router.get("/approvals", response_model=Page[Approval])
def approvals(
    api: Api, pager: Paging, status: ApprovalStatus | None = None, run_id: IdFilter = None
) -> Cut[ledger_approvals.Approval]:
    """Newest first. Those of projects whose token was not shown are left out."""
    with api.read() as tx:
        found = list_approvals(tx, status=status, run_id=run_id, before=pager.before, limit=pager.one_more)
        projects = projects_of_runs(tx, {each.run_id for each in found if each.run_id is not None})
        hidden = api.caller.hidden(tx, projects.values())
    return pager.without(found, lambda each: projects.get(each.run_id or 0) in hidden)


@router.get("/approvals/{approval_id}", response_model=Approval)
def approval(api: Api, approval_id: Id) -> ledger_approvals.Approval:
    """One approval with what is to be decided on."""
    with api.read() as tx:
        return get_approval(tx, approval_id)


@router.post("/approvals/{approval_id}/approve", response_model=Approval)
def approve(api: Api, approval_id: Id, answer: Answer | None = None) -> ledger_approvals.Approval:
    """Say yes; a run that waited for it goes on. 409 when it was decided before."""
    return _decide(api, approval_id, answer or Answer(), approved=True)


@router.post("/approvals/{approval_id}/refuse", response_model=Approval)
def refuse(api: Api, approval_id: Id, answer: Answer | None = None) -> ledger_approvals.Approval:
    """Say no; a run that waited for it goes on without the change. 409 when it was decided before."""
    return _decide(api, approval_id, answer or Answer(), approved=False)


def _decide(api: Access, approval_id: int, answer: Answer, *, approved: bool) -> ledger_approvals.Approval:
    with api.write() as tx:
        by = answer.by or api.actor
        return decide(tx, api.runtime, approval_id, approved=approved, by=by, comment=answer.comment)
