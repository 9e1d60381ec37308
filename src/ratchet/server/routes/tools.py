"""Tools: finding them, calling and testing them, and choosing between their versions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.engines.preflight import check_for_worker
from ratchet.kernel import RunId
from ratchet.ledger.runs import get_run
from ratchet.server import workflow_shapes as shapes
from ratchet.server.fields import Cut, EngineName, Limit, Page, Paging, Text, TextFilter, link_next
from ratchet.server.service import Access, Api
from ratchet.tools.call import Occasion, ToolFailed
from ratchet.tools.definition import ToolType, read_name
from ratchet.tools.examples import test_tool as try_examples
from ratchet.tools.invocation import CALL_SECONDS, use_tool
from ratchet.tools.registry import Toolbox, ToolVersion, open_toolbox
from ratchet.workflows import views
from ratchet.workflows.evolution import evolve_tool, roll_back_tool
from ratchet.workflows.preflight import check_evolution
from ratchet.workflows.runs.tool_workflow import with_workflows

router = APIRouter(tags=["tools"])
OwnName = Annotated[str, Path(max_length=200)]


def _full_name(
    tool: OwnName,
    workflow: Annotated[
        str | None,
        Query(min_length=1, max_length=200, description="the workflow that brings the tool with it"),
    ] = None,
) -> str:
    return tool if workflow is None else f"{workflow}/{tool}"


ToolName = Annotated[str, Depends(_full_name)]
_LONGEST_CALL = 3600
Timeout = Annotated[float, Field(gt=0, le=_LONGEST_CALL, description="seconds to wait for an answer")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Call(_Body):
    inputs: dict[str, JsonValue] = {}
    version: Text | None = Field(None, description="the one that is called, if not given")
    timeout: Timeout = CALL_SECONDS


class Trial(_Body):
    timeout: Timeout = CALL_SECONDS


class Pin(_Body):
    version: Text


class Evolution(_Body):
    engine: EngineName | None = Field(None, description="who rewrites it", examples=["codex"])
    model: Text | None = None
    why: str | None = Field(None, max_length=10_000, description="what should be better")
    simulated: bool = Field(False, description="allow recorded sessions; marks the version")


class Feedback(_Body):
    task: str = Field(min_length=1, max_length=10_000, description="what it was used for")
    good: bool = Field(description="whether it served")


@router.get("/tools", response_model=shapes.ToolPage)
def tools(
    api: Api,
    request: Request,
    response: Response,
    type: ToolType | None = None,
    tag: TextFilter = None,
    after: TextFilter = None,
    limit: Limit = 50,
) -> dict[str, Any]:
    """By name."""
    with opened_toolbox(api) as toolbox:
        found = toolbox.page(after=after or "", limit=limit + 1, type=type, tag=tag)
    items = [views.tool_record(each) for each in found[:limit]]
    if len(found) <= limit:
        return {"items": items, "next": None}
    following = items[-1]["tool"]
    link_next(request, response, "after", following, limit)
    return {"items": items, "next": following}


@router.get("/tools/search", response_model=list[shapes.Choice])
def search(
    api: Api,
    q: Annotated[str, Query(min_length=1, max_length=2000, description="the task")],
    type: ToolType | None = None,
    tag: TextFilter = None,
    limit: Annotated[int, Query(ge=1, le=50)] = 5,
) -> list[dict[str, Any]]:
    """The tools that fit a task best, best first, each with the reasons why."""
    with opened_toolbox(api) as toolbox:
        found = toolbox.search(q, limit, type=type, tags=() if tag is None else (tag,))
    return [views.choice_record(each) for each in found]


@router.get("/tools/{tool}", response_model=shapes.WholeTool)
def one(api: Api, tool: ToolName, version: TextFilter = None) -> dict[str, Any]:
    """A tool with its definition, and how it has done."""
    with opened_toolbox(api) as toolbox:
        return _whole(api, toolbox.get(tool, version))


@router.get("/tools/{tool}/versions", response_model=Page[shapes.ToolVersion])
def versions(api: Api, tool: ToolName, pager: Paging) -> Cut[dict[str, Any]]:
    """Newest first, with those that were refused."""
    with opened_toolbox(api) as toolbox:
        called = toolbox.get(tool)
    with api.read() as tx:
        return pager.cut(views.tool_versions(tx, called, before=pager.before, limit=pager.one_more))


# Both wait for a tool and not for the database, so they hold no thread meanwhile.
@router.post("/tools/{tool}/run", response_model=shapes.Answer)
async def run(api: Api, tool: ToolName, call: Call) -> dict[str, Any]:
    """Call a tool. One that failed answers 200 with `ok` false and an `error`; 429 when it may not be called now."""
    chosen = await run_in_threadpool(_found, api, tool, call.version)
    try:
        called = await use_tool(chosen, call.inputs, _occasion(api, call.timeout))
    except ToolFailed as failed:
        return views.call_record(chosen, failed)
    return views.call_record(chosen, called)


@router.post("/tools/{tool}/test", response_model=shapes.Tested)
async def examples(api: Api, tool: ToolName, wanted: Trial | None = None) -> dict[str, Any]:
    """Run the examples of a tool as tests."""
    chosen = await run_in_threadpool(_found, api, tool, None)
    tested = await try_examples(chosen.tool, _occasion(api, (wanted or Trial()).timeout))
    return views.tested_record(chosen, tested)


@router.post("/tools/{tool}/pin", response_model=shapes.Tool)
def pin(api: Api, tool: ToolName, wanted: Pin) -> dict[str, Any]:
    """Hold a tool at a version, whatever is promoted."""
    with opened_toolbox(api) as toolbox:
        return views.tool_record(toolbox.pin(tool, wanted.version))


@router.post("/tools/{tool}/unpin", response_model=shapes.Tool)
def unpin(api: Api, tool: ToolName) -> dict[str, Any]:
    """Let a tool follow its newest version again."""
    with opened_toolbox(api) as toolbox:
        return views.tool_record(toolbox.unpin(tool))


@router.post("/tools/{tool}/rollback", response_model=shapes.Tool)
def rollback(api: Api, tool: ToolName) -> dict[str, Any]:
    """Take a tool back to the version before. 409 when it is pinned, or there is none."""
    with opened_toolbox(api) as toolbox:
        toolbox.get(tool)
        own, folder = read_name(tool)
        roll_back_tool(api.runtime, own, folder=folder, actor=api.actor, request_id=api.request_id)
        return views.tool_record(toolbox.get(tool))


@router.post("/tools/{tool}/evolve", status_code=202, response_model=shapes.WorkflowRun)
def evolve(api: Api, tool: ToolName, response: Response, wanted: Evolution | None = None) -> dict[str, Any]:
    """Have a tool rewritten; it is replaced only by what proves better. 409 when it is pinned, 424 when its engine
    cannot work now."""
    run_id = start_evolution(api, tool, wanted or Evolution())
    response.headers["Location"] = f"/workflows/runs/{run_id}"
    with api.read() as tx:
        return views.run_record(get_run(tx, run_id))


def start_evolution(api: Access, tool: str, wanted: Evolution) -> RunId:
    """A run that rewrites a tool that there is."""
    with opened_toolbox(api) as toolbox:
        toolbox.get(tool)
    asked = wanted.model_dump()
    return evolve_named(api, *read_name(tool), asked)


def evolve_named(api: Access, tool: str, folder: str, asked: dict[str, Any]) -> RunId:
    """The same, of the tool of that name in that folder, once its engine was looked at."""
    check = partial(
        check_evolution,
        api.runtime,
        tool,
        folder=folder,
        engine=asked.get("engine"),
        model=asked.get("model"),
    )
    check_for_worker(api.runtime, check)
    return evolve_tool(api.runtime, tool, folder=folder, **asked, actor=api.actor, request_id=api.request_id)


@router.post("/tools/{tool}/feedback", status_code=204)
def feedback(api: Api, tool: OwnName, given: Feedback) -> None:
    """Say whether a tool served; it counts when tools for a like task are searched."""
    with opened_toolbox(api) as toolbox:
        toolbox.record_feedback(tool, given.good, given.task)


@contextlib.contextmanager
def opened_toolbox(api: Access) -> Iterator[Toolbox]:
    """The tools as they are now. What the last request has read of them is kept for the next one."""
    runtime, service = api.runtime, api.service
    opened = open_toolbox(runtime.ledger, runtime.settings, runtime.home, earlier=service.toolbox)
    service.toolbox = opened
    with contextlib.closing(opened):
        yield opened


def _occasion(api: Access, seconds: float) -> Occasion:
    return with_workflows(Occasion(api.runtime, actor=api.actor, seconds=seconds))


def _found(api: Access, tool: str, version: str | None) -> ToolVersion:
    with opened_toolbox(api) as toolbox:
        return toolbox.get(tool, version)


def _whole(api: Access, version: ToolVersion) -> dict[str, Any]:
    with api.read() as tx:
        return views.one_tool(tx, version)
