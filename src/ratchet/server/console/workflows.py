"""Saved workflows: what each does, what it takes, when it comes, and starting it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Path, Query
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.kernel import NotFound
from ratchet.ledger import Transaction
from ratchet.ledger.workflows import SavedWorkflow, find_content, get_workflow, list_contents
from ratchet.operations import Operation
from ratchet.runtime import list_schedules
from ratchet.runtime.operations import schedules as of_schedules
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.drawings import draw_plan
from ratchet.server.console.formats import clean, cut
from ratchet.server.console.forms import fields_of_workflow, read_values
from ratchet.server.console.page import Page, View
from ratchet.server.console.workflow_runs import RUNS
from ratchet.server.fields import Paging, Shape, Text
from ratchet.server.operation import shown
from ratchet.workflows import operations as of_workflows
from ratchet.workflows.jobs import SCHEDULED
from ratchet.workflows.operations import WorkflowAnswer, runs_of
from ratchet.workflows.schedules import Overlap, put
from ratchet.workflows.views import plan_record

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
