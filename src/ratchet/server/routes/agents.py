"""Agents: making them, telling them what was wrong, looking at them, and choosing between their versions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from ratchet.agents import operations, views
from ratchet.agents.architect import (
    AgentRequest,
    Severity,
    check_creation,
    check_feedback,
    create_agent,
    send_feedback,
)
from ratchet.agents.host import Host
from ratchet.engines.preflight import check_for_worker
from ratchet.kernel import RunId
from ratchet.ledger.agents import get_agent
from ratchet.ledger.runs import get_run
from ratchet.server import agent_shapes as shapes
from ratchet.server.fields import Cut, EngineName, Limit, Page, Paging, Text, TextFilter, link_next
from ratchet.server.service import Access, Api

router = APIRouter(tags=["agents"])
AgentName = Annotated[str, Path(max_length=200)]
VersionName = Annotated[
    str, Path(max_length=200, description="a commit or its beginning, 0.1.0, v0.1.0, or `latest`")
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewAgent(_Body):
    name: Text = Field(description="lower-case letters, digits, '.', '_' and '-'", examples=["greeter"])
    description: str = Field(min_length=1, description="what it should do")
    engine: EngineName | None = Field(None, description="who writes it", examples=["codex"])
    model: Text | None = None
    simulated: bool = Field(False, description="allow recorded sessions; marks the agent")

    def wanted(self) -> AgentRequest:
        return AgentRequest(**self.model_dump())


class Feedback(_Body):
    message: str = Field(min_length=1, description="what was wrong, or what is wanted")
    severity: Annotated[Severity, Field(strict=False)] = Severity.NORMAL
    version: Text | None = Field(
        None, description="the version it is about; another than the current one makes a variant"
    )
    engine: EngineName | None = None
    model: Text | None = None
    simulated: bool = False


class Choice(_Body):
    version: Text = Field(description="a commit or its beginning, 0.1.0, v0.1.0, or `latest`")


class Promotion(Choice):
    force: bool = Field(False, description="also a quarantined one; that takes it out")


class Rollback(_Body):
    version: Text | None = Field(None, description="the one that was current before, if not given")
    carry_state: bool = Field(
        False, description="bring the current state along, instead of taking up the old one"
    )


@router.get("/agents", response_model=shapes.AgentPage)
def agents(
    api: Api, request: Request, response: Response, after: TextFilter = None, limit: Limit = 50
) -> dict[str, Any]:
    """By name."""
    with api.read() as tx:
        found = views.agents(tx, after=after or "", limit=limit + 1)
    if len(found) <= limit:
        return {"items": found, "next": None}
    following = found[limit - 1]["name"]
    link_next(request, response, "after", following, limit)
    return {"items": found[:limit], "next": following}


@router.post("/agents", status_code=202, response_model=shapes.AgentRun)
def create(api: Api, new: NewAgent, response: Response) -> dict[str, Any]:
    """Make an agent; a worker does it, and the run says how far it is. 409 when there is one of that name, 424
    when the engine that writes it cannot work now."""
    return _started(api, response, start_creation(api, new))


def start_creation(api: Access, new: NewAgent) -> RunId:
    wanted = new.wanted()
    check_for_worker(api.runtime, partial(check_creation, api.runtime, wanted))
    return create_agent(api.runtime, wanted, **_by(api))


@router.get("/agents/{name}", response_model=shapes.ServedAgent)
async def agent(api: Api, name: AgentName) -> dict[str, Any]:
    """One agent with its current version, its address, its last runs, and what the host in this process says of it."""
    found = await run_in_threadpool(_agent, api, name)
    # The host lives in this event loop, so it is asked here and not in a thread.
    return {**found, "serving": serving(api.service.host, name)}


@router.delete("/agents/{name}", status_code=204)
def delete(
    api: Api, name: AgentName, purge: Annotated[bool, Query(description="remove its directory, too")] = False
) -> None:
    """Delete an agent; its name is free again."""
    operations.delete(api.runtime, name, purge=purge, **_by(api))


@router.get("/agents/{name}/versions", response_model=Page[shapes.ListedVersion])
def versions(api: Api, name: AgentName, pager: Paging) -> Cut[dict[str, Any]]:
    """Newest first."""
    with api.read() as tx:
        found = views.versions(tx, name, before=pager.before, limit=pager.one_more)
    return pager.cut(found)


@router.get("/agents/{name}/versions/{version}", response_model=shapes.WholeVersion)
def version(api: Api, name: AgentName, version: VersionName) -> dict[str, Any]:
    """One version with its tools."""
    with api.read() as tx:
        return views.one_version(tx, api.runtime.home, name, version)


@router.get("/agents/{name}/diff", response_model=shapes.Comparison)
def diff(api: Api, name: AgentName, old: TextFilter = None, new: TextFilter = None) -> dict[str, Any]:
    """What differs between two versions. `new` is the current one if not given, `old` the one `new` was made from."""
    with api.read() as tx:
        compared = views.find_compared(tx, name, old, new)
    return views.comparison(api.runtime.home, compared)


@router.get("/agents/{name}/runs", response_model=Page[shapes.AgentRun])
def runs(api: Api, name: AgentName, pager: Paging) -> Cut[dict[str, Any]]:
    """What was asked of its Architect, newest first."""
    with api.read() as tx:
        get_agent(tx, name)
        found = views.agent_runs(tx, name, before=pager.before, limit=pager.one_more)
    return pager.cut(found, number="run")


@router.post("/agents/{name}/feedback", status_code=202, response_model=shapes.AgentRun)
def feedback(api: Api, name: AgentName, given: Feedback, response: Response) -> dict[str, Any]:
    """Tell an agent what was wrong. A worker takes it up; feedback on one agent is taken one after the other.

    422 when it is longer than `agents.feedback_bytes`, 424 when the engine cannot work now.
    """
    return _started(api, response, start_feedback(api, name, given))


def start_feedback(api: Access, name: str, given: Feedback) -> RunId:
    named = {"engine": given.engine, "model": given.model}
    check_for_worker(api.runtime, partial(check_feedback, api.runtime, name, given.message, **named))
    return send_feedback(api.runtime, name, **given.model_dump(), **_by(api))


@router.post("/agents/{name}/rollback", response_model=shapes.WholeAgent)
def rollback(api: Api, name: AgentName, wanted: Rollback | None = None) -> dict[str, Any]:
    """Take an agent back to an earlier version: the one that was current before, if none is named.

    409 when the present state is to be carried and does not fit.
    """
    chosen = wanted or Rollback()
    operations.rollback(api.runtime, name, chosen.version, carry_state=chosen.carry_state, **_by(api))
    return _agent(api, name)


@router.post("/agents/{name}/promote", response_model=shapes.WholeAgent)
def promote(api: Api, name: AgentName, wanted: Promotion) -> dict[str, Any]:
    """Let an agent's address lead to this version."""
    operations.promote(api.runtime, name, wanted.version, force=wanted.force, **_by(api))
    return _agent(api, name)


@router.post("/agents/{name}/pin", response_model=shapes.WholeAgent)
def pin(api: Api, name: AgentName, wanted: Choice) -> dict[str, Any]:
    """Hold an agent's address at this version: new versions do not move it."""
    operations.pin(api.runtime, name, wanted.version, **_by(api))
    return _agent(api, name)


@router.post("/agents/{name}/unpin", response_model=shapes.WholeAgent)
def unpin(api: Api, name: AgentName) -> dict[str, Any]:
    """Let new versions move the address again."""
    operations.unpin(api.runtime, name, **_by(api))
    return _agent(api, name)


def _by(api: Access) -> dict[str, Any]:
    return {"actor": api.actor, "request_id": api.request_id}


def _started(api: Access, response: Response, run_id: RunId) -> dict[str, Any]:
    response.headers["Location"] = f"/runs/{run_id}"
    with api.read() as tx:
        return views.run_record(get_run(tx, run_id))


def serving(host: Host | None, name: str) -> list[dict[str, Any]] | None:
    """What the host in this process runs of an agent; None where another process serves agents."""
    if host is None or not host.is_active:
        return None
    return [
        version for each in host.status()["agents"] if each["agent"] == name for version in each["versions"]
    ]


def _agent(api: Access, name: str) -> dict[str, Any]:
    with api.read() as tx:
        return views.one_agent(tx, api.runtime.home, api.runtime.settings.agents, name)
