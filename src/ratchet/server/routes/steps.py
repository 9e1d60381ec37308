"""Steps with the attempts at them."""

from __future__ import annotations

from fastapi import APIRouter

from ratchet.kernel import NotFound
from ratchet.ledger.protocols import get_protocol_step
from ratchet.ledger.runs import get_step, latest_attempts
from ratchet.protocols.views import attempt_answers, step_record
from ratchet.server import shapes
from ratchet.server.fields import Id, Paging
from ratchet.server.problems import documented
from ratchet.server.protocol_shapes import ProtocolStepWithAttempts, StepWithAttempts
from ratchet.server.service import Api

router = APIRouter(tags=["steps"], responses=documented(401, 403, 404, 422))


@router.get("/steps/{step_id}")
def step(api: Api, step_id: Id, pager: Paging) -> ProtocolStepWithAttempts | StepWithAttempts:
    """A step with its attempts, the last one first. They are paged: `before` takes an attempt's number.

    A step of a protocol has its own fields, too.
    """
    with api.read() as tx:
        found = get_step(tx, step_id)
        attempts = latest_attempts(tx, step_id, before=pager.before, limit=pager.one_more)
        page = pager.cut(attempts, number="number")
        shown = {
            **shapes.Step.model_validate(found).model_dump(),
            "attempts": {"items": attempt_answers(tx, page.items), "next": page.next},
        }
        try:
            own = step_record(get_protocol_step(tx, step_id))
        except NotFound:
            return StepWithAttempts.model_validate(shown)
    return ProtocolStepWithAttempts.model_validate({**own, **shown})
