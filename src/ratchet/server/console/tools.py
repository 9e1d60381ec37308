"""Tools: found by what they are for, with their versions and how these have done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from starlette.responses import Response

from ratchet.kernel import RatchetError, iso
from ratchet.ledger.tool_calls import CallRow
from ratchet.ledger.tools import VersionStatus, calls_of
from ratchet.server.console.access import Acting
from ratchet.server.console.formats import clean, cut, tool_place
from ratchet.server.console.page import Page
from ratchet.server.console.workflow_runs import RUNS
from ratchet.server.fields import EngineName, Limit, Paging, Text, TextFilter
from ratchet.server.routes import tools as routes
from ratchet.server.routes.tools import Evolution, ToolName, opened_toolbox
from ratchet.server.workflow_shapes import Choice, Tool, WholeTool
from ratchet.server.workflow_shapes import ToolVersion as ToolVersionShape
from ratchet.tools.definition import CALLABLE, ToolType
from ratchet.tools.registry import ToolVersion
from ratchet.workflows import views
from ratchet.workflows.evolution.parts import parts_of

router = APIRouter()
_FOUND = 20
_LAST_CALLS = 10
_LONGEST_SCHEMA = 10_000


@router.get("/tools")
def tools(
    page: Page,
    q: Annotated[str | None, Query(max_length=2000)] = None,
    type: ToolType | None = None,
    tag: TextFilter = None,
    after: TextFilter = None,
    limit: Limit = 50,
) -> Response:
    """By name, or those that fit a task best, each with the reasons why."""
    following = None
    with opened_toolbox(page.api) as toolbox:
        if q and q.strip():
            chosen = toolbox.search(q, _FOUND, type=type, tags=() if tag is None else (tag,))
            listed: list[Any] = [Choice.model_validate(views.choice_record(each)) for each in chosen]
        else:
            found = toolbox.page(after=after or "", limit=limit + 1, type=type, tag=tag)
            listed = [Tool.model_validate(views.tool_record(each)) for each in found[:limit]]
            following = listed[-1].tool if len(found) > limit else None
        broken = [{"name": each.name, "files": each.files, "reason": each.reason} for each in toolbox.broken]
    document = {
        "tools": listed,
        "next": following,
        "q": q,
        "type": type,
        "tag": tag,
        "types": [str(each) for each in ToolType if each in CALLABLE],
        "broken": clean(broken[:_FOUND]),
        "broken_count": len(broken),
    }
    return page.show("tools.html", document, title="Tools", live={"type": "tool.*"})


@router.get("/tools/{tool}")
def tool(page: Page, tool: ToolName, pager: Paging, version: TextFilter = None) -> Response:
    """One tool; another version than the one that is called can be looked at by naming it."""
    with opened_toolbox(page.api) as toolbox:
        called = toolbox.get(tool)
        shown = called if version in (None, called.version) else toolbox.get(tool, version)
    with page.api.read() as tx:
        whole = views.one_tool(tx, shown)
        versions = pager.cut(views.tool_versions(tx, called, before=pager.before, limit=pager.one_more))
        calls = calls_of(tx, shown.id, limit=_LAST_CALLS)
    document = {
        "tool": WholeTool.model_validate(whole),
        "is_called": shown.id == called.id,
        "definition": cut(whole["definition"]),
        "input_schema": cut(shown.tool.input_schema, _LONGEST_SCHEMA),
        "output_schema": cut(shown.tool.output_schema, _LONGEST_SCHEMA),
        "examples": [
            {
                "input": cut(each.input, _LONGEST_SCHEMA),
                "output": cut(each.output, _LONGEST_SCHEMA) if each.checked else None,
                "description": clean(each.description),
            }
            for each in shown.tool.examples
        ],
        "versions": [_version(each, called) for each in versions.items],
        "next": versions.next,
        "calls": [_call(each) for each in calls],
        "why_not": _why_not(called, versions.items, more=versions.next is not None),
    }
    return page.show("tool.html", document, title=tool, live={"type": "tool.*"})


@router.post("/tools/{tool}/actions/pin")
def pin(page: Page, tool: ToolName, _: Acting, version: Annotated[Text, Form()]) -> Response:
    routes.pin(page.api, tool, routes.Pin(version=version))
    return page.done(f"{tool} is held at {version}.", tool_place(tool))


@router.post("/tools/{tool}/actions/unpin")
def unpin(page: Page, tool: ToolName, _: Acting) -> Response:
    found = routes.unpin(page.api, tool)
    return page.done(f"{tool} follows its newest version, {found['version']}.", tool_place(tool))


@router.post("/tools/{tool}/actions/rollback")
def rollback(page: Page, tool: ToolName, _: Acting) -> Response:
    found = routes.rollback(page.api, tool)
    return page.done(f"{tool} is back at {found['version']}.", tool_place(tool))


@router.post("/tools/{tool}/actions/evolve")
def evolve(
    page: Page,
    tool: ToolName,
    _: Acting,
    engine: Annotated[EngineName | None, Form()] = None,
    why: Annotated[str | None, Form(max_length=10_000)] = None,
    simulated: Annotated[bool, Form()] = False,
) -> Response:
    """Have it rewritten; what proves better takes its place."""
    run_id = routes.start_evolution(page.api, tool, Evolution(engine=engine, why=why, simulated=simulated))
    return page.done(f"Run {run_id} rewrites {tool}.", f"{RUNS}/{run_id}")


@router.post("/tools/{tool}/actions/feedback")
def feedback(
    page: Page,
    tool: ToolName,
    _: Acting,
    task: Annotated[str, Form(max_length=10_000)],
    good: Annotated[bool, Form()],
) -> Response:
    routes.feedback(page.api, tool, routes.Feedback(task=task, good=good))
    return page.done("It counts when tools for a like task are searched.", tool_place(tool))


def _why_not(called: ToolVersion, versions: Sequence[Mapping[str, Any]], more: bool) -> dict[str, str | None]:
    """Why an action on the tool cannot be done now; None where it can."""
    pinned = f"it is pinned at {called.version}" if called.pinned else None
    earlier = more or any(each["promoted_at"] and not each["is_called"] for each in versions)
    return {
        "unpin": None if called.pinned else "it is not pinned",
        "rollback": pinned or (None if earlier else "there is no earlier version to go back to"),
        "evolve": pinned or _obstacle(called),
    }


def _obstacle(called: ToolVersion) -> str | None:
    try:
        parts_of(called.tool)
    except RatchetError as error:
        return str(error)
    return None


def _version(found: Mapping[str, Any], called: ToolVersion) -> dict[str, Any]:
    why_not = f"it was refused: {found['reason']}" if found["status"] == VersionStatus.REFUSED else None
    if called.pinned and found["is_called"]:
        why_not = "it is pinned here"
    return {**ToolVersionShape.model_validate(found).model_dump(), "why_not_pin": why_not}


def _call(row: CallRow) -> dict[str, Any]:
    """A call in short. Inputs and outputs are kept only as far as they are small."""
    return {
        "at": iso(row.at),
        "ok": row.ok,
        "error": clean(row.error),
        "wall_ms": row.wall_ms,
        "cost_microusd": row.cost_microusd,
        "unpriced_tokens": row.unpriced_tokens,
        "run_id": row.run_id,
        "simulated": row.simulated,
        "input": None if row.input is None else cut(row.input, _LONGEST_SCHEMA),
        "output": None if row.output is None else cut(row.output, _LONGEST_SCHEMA),
    }
