"""Whether this process lives, and whether it can work."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from ratchet import __version__
from ratchet.kernel import LedgerError
from ratchet.observe.logs import logger
from ratchet.runtime import list_processes
from ratchet.server.service import Access, Api

router = APIRouter(tags=["health"])
_log = logger(__name__)
_STATES = {"draining": "the worker is draining", "dead": "the other processes have given this one up"}


class Live(BaseModel):
    status: Literal["ok"] = "ok"


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    version: str = __version__
    reasons: list[str] = Field(description="why it is degraded")


class Readiness(BaseModel):
    status: Literal["ready", "not ready"]
    reasons: list[str] = Field(description="why it is not ready")


@router.get("/health")
def health(api: Api) -> Health:
    """Always 200: the body says how well."""
    reasons = _reasons(api)
    return Health(status="degraded" if reasons else "ok", reasons=reasons)


@router.get("/health/live")
async def live() -> Live:
    """Answers as long as the process does, whatever the database does."""
    return Live()


@router.get("/health/ready", responses={503: {"model": Readiness}})
def ready(api: Api, response: Response) -> Readiness:
    """503 while work should be sent elsewhere."""
    reasons = _reasons(api)
    if reasons:
        response.status_code = 503
        response.headers["Retry-After"] = "2"
    return Readiness(status="not ready" if reasons else "ready", reasons=reasons)


def _reasons(api: Access) -> list[str]:
    """What keeps this process from working, in words that tell a stranger nothing."""
    reasons = ["the server is shutting down"] if api.service.stopping.is_set() else []
    try:
        with api.read() as tx:
            states = {process.id: process.state for process in list_processes(tx)}
    except LedgerError as error:
        _log.warning("the database does not answer", error=str(error))
        return [*reasons, "the database does not answer"]
    state = states.get(api.service.process_id or "")
    if state is None:
        reasons.append("no worker runs in this process")
    elif state in _STATES:
        reasons.append(_STATES[state])
    return reasons
