"""The state of an agent: as it is, as it was, and bringing an earlier one back."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ratchet.agents import operations, views
from ratchet.server import agent_shapes as shapes
from ratchet.server.fields import MAX_ID, Cut, IdFilter, Json, Page, Paging, Text, TextFilter
from ratchet.server.routes.agents import AgentName
from ratchet.server.service import Api

router = APIRouter(tags=["agents"])


class Restoring(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    number: int = Field(ge=1, le=MAX_ID, description="the change after which the state was as wanted")
    version: Text | None = Field(None, description="the current one, if not given")


@router.get("/agents/{name}/state", response_model=dict[str, Json])
def state(api: Api, name: AgentName, version: TextFilter = None, at: IdFilter = None) -> dict[str, Any]:
    """The state of a version as it is, or as it was after the change numbered `at`."""
    if at is None:
        return operations.read_state(api.runtime, name, version)
    return operations.state_at(api.runtime, name, at, version)


@router.get("/agents/{name}/state/history", response_model=Page[shapes.Change])
def history(api: Api, name: AgentName, pager: Paging, version: TextFilter = None) -> Cut[dict[str, Any]]:
    """The changes of the state, newest first. `before` takes a change's number."""
    found = operations.state_history(api.runtime, name, version, limit=pager.one_more, before=pager.before)
    return pager.cut([views.change_record(change) for change in found], number="number")


@router.post("/agents/{name}/state/restore", response_model=shapes.Change)
def restore(api: Api, name: AgentName, wanted: Restoring) -> dict[str, Any]:
    """Bring an earlier state back, as a new change; the newest change is returned. Doing it again changes nothing."""
    change = operations.restore_state(
        api.runtime, name, wanted.number, wanted.version, actor=api.actor, request_id=api.request_id
    )
    return views.change_record(change)
