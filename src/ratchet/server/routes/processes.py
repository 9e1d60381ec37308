"""The processes that work on this ledger."""

from __future__ import annotations

from fastapi import APIRouter

from ratchet import runtime
from ratchet.runtime import list_processes
from ratchet.server.fields import Cut, Moment, Page, Shape
from ratchet.server.service import Api

router = APIRouter(tags=["processes"])


class Process(Shape):
    id: str
    role: str
    host: str
    pid: int
    version: str
    state: str
    slots: int
    busy: int
    started_at: Moment
    beat_at: Moment


@router.get("/processes", response_model=Page[Process])
def processes(api: Api) -> Cut[runtime.Process]:
    """Oldest first, the whole fleet at once."""
    with api.read() as tx:
        return Cut(list_processes(tx))
