"""Workflows: planning, saving, checking and running them, and what their runs came to."""

from __future__ import annotations

import contextlib
import io
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.engines.preflight import check_for_worker
from ratchet.flowkit.graph import waves as waves_of
from ratchet.flowkit.schema import workflow_schema
from ratchet.kernel import RunId
from ratchet.ledger.runs import get_run
from ratchet.ledger.workflows import get_workflow
from ratchet.server import workflow_shapes as shapes
from ratchet.server.fields import MAX_ID, Cut, EngineName, Id, Page, Paging, Text
from ratchet.server.routes.tools import Evolution, evolve_named
from ratchet.server.service import Access, Api
from ratchet.workflows import views
from ratchet.workflows.evolution.requests import choose_of_workflow
from ratchet.workflows.exports import Target, export_workflow
from ratchet.workflows.memory import delete_workflow
from ratchet.workflows.overseer import LONGEST_SENTENCE, start_plan
from ratchet.workflows.preflight import check_overseer, check_workflow
from ratchet.workflows.profile import profile_workflow
from ratchet.workflows.runs.plan import start_workflow
from ratchet.workflows.runs.preparation import prepare
from ratchet.workflows.saved import check_data, keep_workflow, known_tools, load_saved, require_spec

router = APIRouter(tags=["workflows"])
WorkflowName = Annotated[str, InPath(max_length=200)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class GivenWorkflow(_Body):
    spec: dict[str, JsonValue] = Field(description="the workflow, as GET /workflows/schema describes it")


class NewWorkflow(GivenWorkflow):
    name: Text | None = Field(None, description="the name to save it under; its workflow_id if not given")


class Wish(_Body):
    sentence: str = Field(min_length=1, max_length=LONGEST_SENTENCE, description="what it should do")
    name: Text | None = Field(None, description="the name to save it under; one of its own if not given")
    engine: EngineName | None = Field(None, description="who plans", examples=["llm"])
    model: Text | None = None
    reuse: bool = Field(True, description="take a remembered plan if there is one for this")
    keep_tools: bool = Field(False, description="put tools that are written for it among all others")
    simulated: bool = Field(False, description="allow recorded sessions; marks the workflow")


class NewRun(_Body):
    inputs: dict[str, JsonValue] = {}
    cached: bool = Field(True, description="use the results of steps that are known already")
    spread: bool | None = Field(
        None, description="offer steps to other workers; as the settings say, if null"
    )
    background: bool = Field(False, description="give way to whatever else there is to do")
    priority: int | None = Field(None, ge=0, le=9, description="0 is done first, 9 last")
    simulated: bool = Field(False, description="allow recorded answers; marks the run")


class Export(_Body):
    target: Annotated[Target, Field(strict=False)]
    run_id: int | None = Field(
        None, ge=1, le=MAX_ID, description="a completed run, whose answers are taken along"
    )
    models: dict[Text, Text] = Field({}, description="which model answers for which; `*` is all others")


@router.get("/workflows", response_model=Page[shapes.ListedWorkflow])
def workflows(api: Api, pager: Paging) -> Cut[dict[str, Any]]:
    """The saved workflows, the last saved first."""
    with api.read() as tx:
        return pager.cut(views.workflows(tx, before=pager.before, limit=pager.one_more))


@router.post("/workflows", status_code=201, response_model=shapes.Workflow)
def save(api: Api, new: NewWorkflow, response: Response) -> dict[str, Any]:
    """Keep a workflow, in the place of an earlier one of its name. 422 names everything that is wrong with it."""
    spec = require_spec(new.spec)
    with api.write() as tx:
        saved = keep_workflow(tx, spec, origin=api.actor, name=new.name)
    response.headers["Location"] = f"/workflows/{saved.name}"
    return views.workflow_record(saved)


@router.get("/workflows/schema")
def schema() -> dict[str, Any]:
    """The JSON Schema of workflows."""
    return workflow_schema()


@router.post("/workflows/validate", response_model=shapes.Checked)
def validate(api: Api, given: GivenWorkflow) -> dict[str, Any]:
    """Everything that is wrong with a workflow, tools that do not exist included. Nothing is run."""
    problems = check_data(given.spec, known_tools(api.runtime.ledger, api.runtime.settings))
    return {"valid": not problems, "problems": problems}


@router.post("/workflows/plan", status_code=202, response_model=shapes.WorkflowRun)
def plan(api: Api, wish: Wish, response: Response) -> dict[str, Any]:
    """Have an overseer plan a workflow; a worker does it, and the result of the run names what was saved.

    424 when the engine that plans cannot work now, and no plan for this is remembered.
    """
    check = partial(
        check_overseer,
        api.runtime,
        wish.sentence,
        reuse=wish.reuse,
        engine=wish.engine,
        model=wish.model,
    )
    check_for_worker(api.runtime, check)
    run_id = start_plan(api.runtime, **wish.model_dump(), actor=api.actor, request_id=api.request_id)
    return _started(api, response, run_id)


@router.get("/workflows/runs", response_model=Page[shapes.WorkflowRun])
def all_runs(api: Api, pager: Paging) -> Cut[dict[str, Any]]:
    """Everything that was run or planned, newest first."""
    with api.read() as tx:
        found = views.workflow_runs(tx, before=pager.before, limit=pager.one_more)
    return pager.cut(found, number="run_id")


@router.get("/workflows/runs/{run_id}", response_model=shapes.Outcome)
def outcome(api: Api, run_id: Id) -> dict[str, Any]:
    """What a run has come to, or how far it is. `/events/stream?run_id=` tells of it as it happens."""
    with api.read() as tx:
        return views.outcome(tx, api.ledger.artifacts, run_id)


@router.get("/workflows/{name}", response_model=shapes.WholeWorkflow)
def workflow(api: Api, name: WorkflowName) -> dict[str, Any]:
    """A saved workflow with its spec and its last runs."""
    with api.read() as tx:
        return views.one_workflow(tx, name)


@router.delete("/workflows/{name}", status_code=204)
def delete(api: Api, name: WorkflowName) -> None:
    """Delete a saved workflow with what is remembered of it; its runs stay."""
    delete_workflow(api.runtime, name, actor=api.actor, request_id=api.request_id)


@router.get("/workflows/{name}/waves")
def waves(api: Api, name: WorkflowName) -> list[list[str]]:
    """The steps that could run at once, in turns."""
    return waves_of(load_saved(api.runtime, name))


@router.get("/workflows/{name}/runs", response_model=Page[shapes.WorkflowRun])
def runs(api: Api, name: WorkflowName, pager: Paging) -> Cut[dict[str, Any]]:
    """The runs of one workflow, newest first."""
    with api.read() as tx:
        get_workflow(tx, name)
        found = views.workflow_runs(tx, name, before=pager.before, limit=pager.one_more)
    return pager.cut(found, number="run_id")


@router.post("/workflows/{name}/runs", status_code=202, response_model=shapes.WorkflowRun)
def start(api: Api, name: WorkflowName, new: NewRun, response: Response) -> dict[str, Any]:
    """Start a run; a worker carries it. 422 names every input and every tool that is wrong or missing.

    424 when a model that its steps ask cannot be asked now.
    """
    return _started(api, response, start_saved(api, name, new))


def start_saved(api: Access, name: str, new: NewRun) -> RunId:
    """A run of a saved workflow, with everything about it checked."""
    spec = load_saved(api.runtime, name)
    prepared = prepare(api.runtime, spec, new.inputs, cached=new.cached, spread=new.spread)
    check_for_worker(api.runtime, partial(check_workflow, api.runtime, prepared))
    with api.write() as tx:
        return start_workflow(
            tx,
            api.runtime,
            prepared,
            simulated=new.simulated,
            priority=new.priority,
            background=new.background,
        )


@router.get("/workflows/{name}/profile", response_model=shapes.Profile)
def profile(
    api: Api,
    name: WorkflowName,
    last: Annotated[int, Query(ge=1, le=100, description="so many of its runs")] = 20,
) -> dict[str, Any]:
    """Where the time and the money of its last runs went, and what to make better first."""
    with api.read() as tx:
        return profile_workflow(tx, name, last).data()


@router.post("/workflows/{name}/evolve", status_code=202, response_model=shapes.WorkflowRun)
def evolve(
    api: Api, name: WorkflowName, response: Response, wanted: Evolution | None = None
) -> dict[str, Any]:
    """Have the tool rewritten that is worth it most. 409 when none can be, 424 when its engine cannot work now."""
    chosen = choose_of_workflow(api.runtime, name)
    asked = {"why": chosen.why, **(wanted or Evolution()).model_dump(exclude_none=True)}
    return _started(api, response, evolve_named(api, chosen.tool, chosen.folder, asked))


@router.post(
    "/workflows/{name}/export", response_class=Response, responses={200: {"content": {"application/zip": {}}}}
)
async def export(api: Api, name: WorkflowName, wanted: Export) -> Response:
    """The workflow as a zip of a folder that runs without Ratchet. 422 says for each step why it cannot be exported."""
    spec = await run_in_threadpool(load_saved, api.runtime, name)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "export"
        run_id = None if wanted.run_id is None else RunId(wanted.run_id)
        models = dict(wanted.models) or None
        await export_workflow(spec, wanted.target, folder, runtime=api.runtime, run_id=run_id, models=models)
        content = await run_in_threadpool(_zipped, folder)
    headers = {"Content-Disposition": f'attachment; filename="{wanted.target}.zip"'}
    return Response(content, media_type="application/zip", headers=headers)


def _zipped(folder: Path) -> bytes:
    packed = io.BytesIO()
    with contextlib.closing(zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED)) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return packed.getvalue()


def _started(api: Access, response: Response, run_id: RunId) -> dict[str, Any]:
    response.headers["Location"] = f"/workflows/runs/{run_id}"
    with api.read() as tx:
        return views.run_record(get_run(tx, run_id))
