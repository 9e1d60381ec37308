"""Runs of workflows: how far each step is, where the time goes, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from starlette.responses import Response

from ratchet.kernel import NotFound
from ratchet.ledger import ArtifactStore, Run, Transaction
from ratchet.ledger.questions import ApprovalStatus, list_approvals
from ratchet.ledger.runs import get_run, latest_steps
from ratchet.ledger.workflows import find_workflow
from ratchet.runtime.operations import approvals
from ratchet.runtime.operations import runs as of_runs
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.buttons import add_buttons, run_controls
from ratchet.server.console.drawings import draw_run
from ratchet.server.console.formats import clean, cut, cut_text
from ratchet.server.console.page import Page
from ratchet.server.fields import Id, Paging
from ratchet.server.operation import shown
from ratchet.workflows import operations as of_workflows
from ratchet.workflows import views
from ratchet.workflows.operations import WorkflowRunAnswer
from ratchet.workflows.runs.results import read_value

router = APIRouter()
add_buttons(router, (of_runs.pause, of_runs.resume, of_runs.cancel), "/workflows/runs/{run_id}")
add_buttons(
    router,
    (approvals.approve, approvals.refuse),
    "/workflows/runs/{run_id}/approvals/{approval_id}",
    "/workflows/runs/{run_id}",
)
RUNS = f"{ROOT}/workflows/runs"


@router.post("/workflows/runs/{run_id}/approvals/{approval_id}/actions/answer")
def answer(
    page: Page, run_id: Id, approval_id: Id, _: Acting, answer: Annotated[str, Form(max_length=1_000_000)]
) -> Response:
    """Give the answer that an approval asks for, where that is more than yes or no."""
    approvals.approve(page.api, approval_id, answer=approvals.read_answer(None, answer))
    return page.done(f"Approval {approval_id} is answered.", f"{RUNS}/{run_id}")


_MOST_BYTES = 1_000_000
_LAST_STEPS = 50
StepName = Annotated[str | None, Query(max_length=500)]


@router.get("/workflows/runs")
def runs(page: Page, pager: Paging) -> Response:
    """Everything that was run or planned, newest first."""
    found = of_workflows.all_runs(page.api, pager)
    document = {"runs": list(map(shown, found.items)), "next": found.next}
    live = {"type": "run.*"} if pager.before is None else None
    return page.show("workflow_runs.html", document, title="Runs of workflows", live=live)


@router.get("/workflows/runs/{run_id}")
def run(page: Page, run_id: Id, step: StepName = None) -> Response:
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
