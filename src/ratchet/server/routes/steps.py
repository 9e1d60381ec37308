"""Steps with the attempts at them."""

from __future__ import annotations

from fastapi import APIRouter

from ratchet.ledger import Artifact
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger.runs import get_attempt, get_step, latest_attempts
from ratchet.server import shapes
from ratchet.server.fields import Id
from ratchet.server.paging import Cut, Page, Paging
from ratchet.server.service import Api

router = APIRouter(tags=["runs"])


class StepWithAttempts(shapes.Step):
    attempts: Page[shapes.Attempt]


@router.get("/steps/{step_id}")
def step(api: Api, step_id: Id, pager: Paging) -> StepWithAttempts:
    """A step with its attempts, the last one first. They are paged: `before` takes an attempt's number."""
    with api.read() as tx:
        found = get_step(tx, step_id)
        attempts = latest_attempts(tx, step_id, before=pager.before, limit=pager.one_more)
    page = pager.cut(attempts, number="number")
    shown = shapes.Step.model_validate(found).model_dump()
    return StepWithAttempts.model_validate({**shown, "attempts": page}, from_attributes=True)


@router.get("/attempts/{attempt_id}/artifacts", response_model=Page[shapes.Artifact])
def artifacts(api: Api, attempt_id: Id, pager: Paging) -> Cut[Artifact]:
    """Newest first."""
    with api.read() as tx:
        get_attempt(tx, attempt_id)
        return pager.cut(
            ledger_artifacts.latest(tx, attempt_id=attempt_id, before=pager.before, limit=pager.one_more)
        )
