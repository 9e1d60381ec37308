"""Queues: what is in them, pausing and resuming them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from ratchet.runtime.operations.jobs import QUEUE_OPERATIONS, QueueAnswer, list_
from ratchet.server.operation import add_operations, shape_of
from ratchet.server.service import Api

if TYPE_CHECKING:
    from ratchet.server.fields import Shape as Queue
else:
    Queue = shape_of(QueueAnswer)

router = APIRouter(tags=["queues"])


class Queues(BaseModel):
    """Every queue under its name, beside the name of what carries them."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Queue]

    backend: Literal["ledger"] = "ledger"


@router.get("/queues")
def queues(api: Api) -> Queues:
    """Every queue with its limits, and how many jobs it holds in each status."""
    return Queues.model_validate(
        {"backend": "ledger"} | {state.name: QueueAnswer.of(state) for state in list_(api).items}
    )


add_operations(router, QUEUE_OPERATIONS)
