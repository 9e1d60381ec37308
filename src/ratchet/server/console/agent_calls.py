"""Calls of an agent: trying a tool as any MCP client would call it, and what production shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from ratchet.agents import operations as of_agents
from ratchet.agents import production_operations as of_production
from ratchet.agents.contract import Role
from ratchet.agents.operations import AgentReply
from ratchet.operations import Window
from ratchet.server.console.access import Acting
from ratchet.server.console.agents import AgentName
from ratchet.server.console.formats import clean, cut, cut_text
from ratchet.server.console.forms import (
    MORE,
    add_buttons,
    fields_of_schema,
    given_texts,
    read_values,
    takes_more,
)
from ratchet.server.console.page import Page, View
from ratchet.server.fields import Paging, TextFilter
from ratchet.server.operation import shown

router = APIRouter()
# Longer than this nobody looks at a page that does not come.
_PATIENCE_SECONDS = 60.0
_LAST_REMARKS = 20
_PRODUCTION = "/agents/{name}/production"
add_buttons(
    router,
    (of_production.propose, of_production.dismiss),
    "/agents/{name}/incidents/{incident_id}",
    _PRODUCTION,
)
add_buttons(
    router,
    (of_production.learn, of_production.traffic, of_production.watch),
    "/agents/{name}",
    _PRODUCTION,
)


@router.get("/agents/{name}/production")
def production(page: Page, name: AgentName, pager: Paging) -> Response:
    """What production shows: calls of each version, incidents, remarks of callers, and how traffic is split."""
    incidents = of_production.incidents(page.api, pager, name)
    remarks = of_production.remarks(page.api, Window(limit=_LAST_REMARKS), name)
    document = {
        "agent": name,
        "production": clean(shown(of_production.production(page.api, name)).model_dump(mode="json")),
        "incidents": [clean(shown(each).model_dump(mode="json")) for each in incidents.items],
        "next": incidents.next,
        "remarks": [clean(shown(each).model_dump(mode="json")) for each in remarks.items],
    }
    return page.show(
        "agent_production.html", document, title=f"Production of {name}", live={"type": "agent.*"}
    )


@router.get("/agents/{name}/try")
async def ask(
    page: Page,
    name: AgentName,
    tool: TextFilter = None,
    version: TextFilter = None,
    server: Role = Role.RUNNER,
) -> Response:
    """The tools of a server, and the form of one of them. The Runner's are those that its version was recorded with."""
    tools = await _tools(page, name, version, server)
    return _form(page, name, tools, tool, version, server)


@router.post("/agents/{name}/try")
async def answer(
    page: Page,
    name: AgentName,
    _: Acting,
    tool: TextFilter = None,
    version: TextFilter = None,
    server: Role = Role.RUNNER,
) -> Response:
    """Call it with what was filled in. What it answers stands below the form."""
    tools = await _tools(page, name, version, server)
    form = await page.request.form()
    schema: Any = next((each["input_schema"] for each in tools if each["name"] == tool), {})
    values = read_values(fields_of_schema(schema), form)
    reply = await of_agents.call_(
        page.api, name, tool or "", values, version, server, timeout=_PATIENCE_SECONDS
    )
    return _form(page, name, tools, tool, version, server, form, reply)


async def _tools(page: View, name: str, version: str | None, server: Role) -> list[dict[str, Any]]:
    """Only the Tuner is asked itself: it would have to be started to tell."""
    if server is Role.TUNER:
        found = (await of_agents.tools(page.api, name, version, server)).items
    else:
        found = (await run_in_threadpool(of_agents.version, page.api, name, version or "current")).tools
    return [shown(each).model_dump(mode="json") for each in found]


def _form(
    page: View,
    name: str,
    tools: list[dict[str, Any]],
    tool: str | None,
    version: str | None,
    server: Role,
    given: Mapping[str, Any] | None = None,
    reply: AgentReply | None = None,
) -> Response:
    chosen = next((each for each in tools if tool in (None, each["name"])), None)
    schema = None if chosen is None else chosen["input_schema"]
    fields = fields_of_schema(schema, None if given is None else given_texts(given))
    document = {
        "agent": name,
        "agent_version": version,
        "server": server,
        "servers": [str(each) for each in Role],
        "tools": [{"name": each["name"], "description": each["description"]} for each in tools],
        "tool": chosen
        and {"name": chosen["name"], "description": chosen["description"], "schema": cut(schema)},
        "wanted": tool,
        "fields": clean([each.data() for each in fields]),
        "takes_more": chosen is not None and takes_more(schema),
        "more": clean(str((given or {}).get(MORE, ""))),
        "answer": None if reply is None else _answer(reply),
    }
    return page.show("agent_try.html", document, title=f"Try {name}")


def _answer(reply: AgentReply) -> dict[str, Any]:
    return {
        "failed": reply.failed,
        "text": cut_text(reply.text),
        "structured": None if reply.structured is None else cut(reply.structured),
        "content": cut(reply.content),
    }
