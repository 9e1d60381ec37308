"""Using an agent through Ratchet: its tools, calls of them, and what its servers logged."""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.agents.client import CALL_SECONDS, Callee, check_arguments, tools_of
from ratchet.agents.client import call as call_agent
from ratchet.agents.contract import Role
from ratchet.agents.logs import MOST_LINES, find_log, log_record, tail
from ratchet.server import agent_shapes as shapes
from ratchet.server.fields import Text, TextFilter
from ratchet.server.routes.agents import AgentName
from ratchet.server.service import Api

router = APIRouter(tags=["agents"])
Lines = Annotated[int, Query(ge=0, le=MOST_LINES, description="at most so many, the last ones")]
_LONGEST_CALL = 3600


class Call(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    tool: Text
    arguments: dict[str, JsonValue] = {}
    version: Text | None = Field(None, description="the current one, if not given")
    server: Annotated[Role, Field(strict=False)] = Role.RUNNER
    timeout: float = Field(CALL_SECONDS, gt=0, le=_LONGEST_CALL, description="seconds to wait for an answer")


# Both wait for an agent and not for the database, so they hold no thread meanwhile.
@router.get("/agents/{name}/tools", response_model=list[shapes.Tool])
async def tools(
    api: Api, name: AgentName, version: TextFilter = None, server: Role = Role.RUNNER
) -> list[dict[str, Any]]:
    """The tools that a server of the agent lists; it is started if it does not run."""
    found = await tools_of(api.runtime, api.service.loaded, Callee(name, server, version))
    return [asdict(tool) for tool in found]


@router.post("/agents/{name}/call", response_model=shapes.Answer)
async def call(api: Api, name: AgentName, asked: Call) -> dict[str, Any]:
    """Call a tool. 422 for a tool or an argument that there is not, 502 when the agent does not answer.

    That the tool itself failed is told by `failed` in an answer with 200.
    """
    callee = Callee(name, asked.server, asked.version)
    arguments = functools.partial(check_arguments, arguments=asked.arguments)
    answer = await call_agent(
        api.runtime, api.service.loaded, callee, asked.tool, arguments, seconds=asked.timeout
    )
    return {"agent": name, "tool": asked.tool, **asdict(answer)}


@router.get("/agents/{name}/logs", response_model=shapes.LogLines)
def logs(
    api: Api,
    name: AgentName,
    version: TextFilter = None,
    server: Role = Role.RUNNER,
    printed: Annotated[bool, Query(description="what it printed, instead of what it logged")] = False,
    lines: Lines = 200,
) -> dict[str, Any]:
    """The last lines that a server logged; of the current version, if none is named."""
    with api.read() as tx:
        log = find_log(tx, api.runtime.home, name, server, version, printed=printed)
    return log_record(log, tail(log, lines))
