"""Saved workflows: what each does, what it takes, when it comes, and starting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Path, Query
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.kernel import NotFound
from ratchet.ledger import ArtifactStore, Run, Transaction
from ratchet.ledger.questions import ApprovalStatus, list_approvals
from ratchet.ledger.runs import get_run, latest_steps
from ratchet.ledger.workflows import SavedWorkflow, find_content, find_workflow, get_workflow, list_contents
from ratchet.operations import Operation
from ratchet.runtime import list_schedules
from ratchet.runtime.operations import approvals
from ratchet.runtime.operations import runs as of_runs
from ratchet.runtime.operations import schedules as of_schedules
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.drawings import draw_plan, draw_run
from ratchet.server.console.formats import clean, cut, cut_text
from ratchet.server.console.forms import add_buttons, fields_of_workflow, read_values, run_controls
from ratchet.server.console.page import Page, View
from ratchet.server.fields import Id, Paging, Shape, Text
from ratchet.server.operation import shown
from ratchet.workflows import operations as of_workflows
from ratchet.workflows import views
from ratchet.workflows.jobs import SCHEDULED
from ratchet.workflows.operations import WorkflowAnswer, WorkflowRunAnswer, runs_of
from ratchet.workflows.runs.results import read_value
from ratchet.workflows.schedules import Overlap, put
from ratchet.workflows.views import plan_record

run_router = APIRouter()
add_buttons(run_router, (of_runs.pause, of_runs.resume, of_runs.cancel), "/workflows/runs/{run_id}")
add_buttons(
    run_router,
    (approvals.approve, approvals.refuse),
    "/workflows/runs/{run_id}/approvals/{approval_id}",
    "/workflows/runs/{run_id}",
)
RUNS = f"{ROOT}/workflows/runs"


@run_router.post("/workflows/runs/{run_id}/approvals/{approval_id}/actions/answer")
def answer(
    page: Page, run_id: Id, approval_id: Id, _: Acting, answer: Annotated[str, Form(max_length=1_000_000)]
) -> Response:
    """Give the answer that an approval asks for, where that is more than yes or no."""
    approvals.approve(page.api, approval_id, answer=approvals.read_answer(None, answer))
    return page.done(f"Approval {approval_id} is answered.", f"{RUNS}/{run_id}")


_MOST_BYTES = 1_000_000
_LAST_STEPS = 50
StepName = Annotated[str | None, Query(max_length=500)]


@run_router.get("/workflows/runs")
def runs(page: Page, pager: Paging) -> Response:
    """Everything that was run or planned, newest first."""
    found = of_workflows.all_runs(page.api, pager)
    document = {"runs": list(map(shown, found.items)), "next": found.next}
    live = {"type": "run.*"} if pager.before is None else None
    return page.show("workflow_runs.html", document, title="Runs of workflows", live=live)


@run_router.get("/workflows/runs/{run_id}")
def show_run(page: Page, run_id: Id, step: StepName = None) -> Response:
    """One run. `step` names a step, or a part of one, that is shown closely."""
    with page.api.read() as tx:
        found = get_run(tx, run_id)
        if found.kind != of_workflows.RUN_KIND:
            raise NotFound("run of a workflow", run_id)
        short = WorkflowRunAnswer.of(found)
        ran = short.action == "run"
        progress = clean(views.progress(tx, found)) if ran else None
        document = {
            "run": shown(short),
            "saved": ran and find_workflow(tx, short.workflow) is not None,
            "controls": run_controls(run_id, found.status),
            "approvals": [
                shown(each) for each in list_approvals(tx, run_id=run_id, status=ApprovalStatus.PENDING)
            ],
            "inputs": cut((found.spec or {}).get("inputs")) if ran else None,
            "outputs": _outputs(page.api.ledger.artifacts, found),
            "progress": progress,
            "tools": clean(views.tools_of_run(tx, found)) if progress is not None else {},
            "drawing": None if progress is None else draw_run(f"{RUNS}/{run_id}", progress),
            "last_steps": []
            if ran
            else [shown(each) for each in reversed(latest_steps(tx, run_id, limit=_LAST_STEPS))],
            "step": None if step is None else _step(tx, page.api.ledger.artifacts, run_id, step),
        }
    title = f"Run {run_id} of {short.workflow}"
    return page.show("workflow_run.html", document, title=title, live={"run_id": run_id})


def _outputs(artifacts: ArtifactStore, found: Run) -> list[dict[str, Any]]:
    """What there is of its outputs, also when it failed; for a run that plans or evolves, its result as one."""
    result = found.result if isinstance(found.result, dict) else {}
    kept = result.get("outputs") if "outputs" in result else None
    if isinstance(kept, dict):
        return [{"name": name, **_value(artifacts, each)} for name, each in clean(kept).items()]
    return [] if found.result is None else [{"name": "result", **cut(found.result)}]


def _value(artifacts: ArtifactStore, kept: Mapping[str, Any]) -> dict[str, Any]:
    """A value as the ledger keeps it; one that is very long is only told of."""
    if kept.get("bytes", 0) > _MOST_BYTES:
        return {
            **cut_text(""),
            "characters": kept["bytes"],
            "is_cut": True,
        }
    return cut(read_value(artifacts, kept))


def _step(tx: Transaction, artifacts: ArtifactStore, run_id: int, name: str) -> dict[str, Any]:
    found = views.one_step(tx, run_id, name)
    if found is None:
        return {"name": name, "has_begun": False}
    kept = found.pop("kept")
    value = _value(artifacts, kept) if kept else None
    return {**clean(found), "has_begun": True, "value": value}


router = APIRouter()
PLACE = f"{ROOT}/workflows"
_LAST_RUNS, _LAST_CONTENTS = 20, 20
WorkflowName = Annotated[str, Path(max_length=200)]
Line = Annotated[Text, Form()]
Ticked = Annotated[bool, Form()]


@router.get("/workflows")
def workflows(page: Page, pager: Paging) -> Response:
    found = of_workflows.saved(page.api, pager)
    with page.api.read() as tx:
        last = runs_of(tx, limit=_LAST_RUNS)
    document = {
        "workflows": list(map(shown, found.items)),
        "next": found.next,
        "runs": list(map(shown, last)),
    }
    return page.show("workflows.html", document, title="Workflows", live={"type": "run.*"})


@router.get("/workflows/{name:path}")
def workflow(
    page: Page, name: WorkflowName, content: Annotated[str | None, Query(max_length=64)] = None
) -> Response:
    """A workflow as it is run. `content` is the hash of what it was before, to look at that."""
    with page.api.read() as tx:
        current = get_workflow(tx, name)
        chosen = current if content is None else _content(tx, name, content)
        plan = plan_record(tx, read_spec(chosen.spec))
        document: dict[str, Any] = {
            "workflow": shown(WorkflowAnswer.of(chosen)),
            "is_current": chosen.hash == current.hash,
            "plan": clean(plan),
            "contents": [
                shown(WorkflowAnswer.of(each)) for each in list_contents(tx, name, limit=_LAST_CONTENTS)
            ],
            "runs": list(map(shown, runs_of(tx, name, limit=_LAST_RUNS))),
            "schedules": _schedules(tx, name),
        }
    spec = read_spec(current.spec)
    document["fields"] = [each.data() for each in fields_of_workflow(spec.inputs)]
    document["spec"] = cut(chosen.spec)
    document["drawing"] = draw_plan(document["plan"]["steps"])
    return page.show("workflow.html", document, title=name, live={"type": "run.*"})


@router.post("/workflows/{name:path}/actions/run")
async def run(
    page: Page, name: WorkflowName, _: Acting, again: Ticked = False, simulated: Ticked = False
) -> Response:
    """Start it with the inputs of the form."""
    inputs = await _inputs(page, name)
    started = await run_in_threadpool(
        of_workflows.start, page.api, name, inputs, cached=not again, simulated=simulated
    )
    return page.done(f"Run {started.run_id} is started.", f"{RUNS}/{started.run_id}")


@router.post("/workflows/{name:path}/actions/schedule")
async def schedule(
    page: Page,
    name: WorkflowName,
    _: Acting,
    schedule: Line,
    when: Line,
    timezone: Line = "UTC",
    overlap: Annotated[Overlap, Form()] = Overlap.SKIP,
    again: Ticked = False,
) -> Response:
    """Have it come again with the inputs of the form."""
    made = await run_in_threadpool(
        put,
        page.api,
        schedule,
        when,
        workflow=name,
        inputs=await _inputs(page, name),
        overlap=overlap,
        cached=not again,
        timezone=timezone,
    )
    return page.done(f"{made.name}: {made.meaning}.", _place(name))


@router.post("/workflows/{name:path}/actions/{action}-schedule")
def control_schedule(
    page: Page, name: WorkflowName, _: Acting, schedule: Line, action: Literal["pause", "resume", "remove"]
) -> Response:
    operation: Operation[..., Any] = getattr(of_schedules, action)
    return page.done(f"{operation.report(operation(page.api, schedule))}.", _place(name))


@router.post("/workflows/{name:path}/actions/delete")
def delete(page: Page, name: WorkflowName, _: Acting) -> Response:
    of_workflows.delete(page.api, name)
    return page.done(f"{name} is deleted; its runs stay.", PLACE)


def _place(name: str) -> str:
    return f"{PLACE}/{quote(name)}"


def _content(tx: Transaction, name: str, hash: str) -> SavedWorkflow:
    found = find_content(tx, name, hash)
    if found is None:
        raise NotFound("content", f"{hash} of the workflow {name}")
    return found


def _schedules(tx: Transaction, name: str) -> list[Shape]:
    """Those that run this workflow, as it is saved when they come."""
    return [
        shown(of_schedules.ScheduleAnswer.of(each))
        for each in list_schedules(tx)
        if each.kind == SCHEDULED and isinstance(each.payload, dict) and each.payload.get("workflow") == name
    ]


async def _inputs(page: View, name: str) -> dict[str, Any]:
    form = await page.request.form()
    spec = await run_in_threadpool(_saved_spec, page, name)
    return read_values(fields_of_workflow(spec.inputs), form)


def _saved_spec(page: View, name: str) -> WorkflowSpec:
    with page.api.read() as tx:
        return read_spec(get_workflow(tx, name).spec)
