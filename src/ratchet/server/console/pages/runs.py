"""Runs of every kind: the list, the way to each one's own page, and a plain page for those that have none."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from ratchet.kernel import NotFound, RunStatus
from ratchet.ledger import Filter, Run, Transaction
from ratchet.ledger.artifacts import latest as latest_artifacts
from ratchet.ledger.attention import count_steps
from ratchet.ledger.events import latest
from ratchet.ledger.protocols import is_protocol
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run, latest_attempts, latest_steps
from ratchet.runtime.operations import runs as of_runs
from ratchet.server import shapes
from ratchet.server.console.buttons import add_buttons
from ratchet.server.console.door import ROOT
from ratchet.server.console.rendering import Page, View
from ratchet.server.console.run_controls import run_controls
from ratchet.server.console.spending import spent
from ratchet.server.fields import Id, IdFilter, TextFilter
from ratchet.server.going_on import KINDS, progress
from ratchet.server.paging import Pager, Paging
from ratchet.workflows.views import run_record

router = APIRouter()
add_buttons(router, (of_runs.pause, of_runs.resume, of_runs.cancel), "/runs/{run_id}")
_TRIES, _EVENTS, _ARTIFACTS = 3, 30, 30
_OF_WORKFLOWS = ("run", "plan", "evolve", "optimise")


@router.get("/runs")
def runs(
    page: Page,
    pager: Paging,
    kind: TextFilter = None,
    status: RunStatus | None = None,
    project_id: IdFilter = None,
) -> Response:
    found = of_runs.list_(page.api, pager, kind, status, project_id)
    shown = [shapes.Run.model_validate(each).model_dump(exclude={"spec", "result"}) for each in found.items]
    document = {
        "runs": shown,
        "next": found.next,
        "kind": kind,
        "status": status,
        "project_id": project_id,
        "kinds": KINDS,
        "statuses": list(RunStatus),
    }
    live = {"type": "run.*"} if pager.before is None else None
    return page.show("runs.html", document, title="Runs", live=live)


@router.get("/runs/{run_id}")
def run(page: Page, run_id: Id, pager: Paging) -> Response:
    """To the page of its flow, if that has one for it."""
    with page.api.read() as tx:
        found = get_run(tx, run_id)
        own = _own_page(tx, found)
        document = {} if own else _document(page, tx, found, pager)
    if own is None:
        return page.show("run.html", document, title=f"Run {run_id}", live={"run_id": run_id})
    query = page.request.scope["query_string"].decode("latin-1")
    return RedirectResponse(f"{ROOT}{own}{'?' if query else ''}{query}", HTTPStatus.SEE_OTHER)


def _own_page(tx: Transaction, run: Run) -> str | None:
    """Where the flow of a run shows it. An onboarding is shown by its project."""
    match run.kind:
        case "protocol":
            if is_protocol(tx, run.id):
                return f"/protocols/{run.id}"
            return None if run.project_id is None else f"/projects/{run.project_id}"
        case "research":
            return f"/research/{run.id}" if _has_standing(tx, run.id) else None
        case "workflow":
            return f"/workflows/runs/{run.id}" if run_record(run)["action"] in _OF_WORKFLOWS else None
        case "agent":
            return f"/agents/{quote(run.name, safe='')}"
    return None


def _has_standing(tx: Transaction, run_id: int) -> bool:
    try:
        get_standing(tx, run_id)
    except NotFound:
        return False
    return True


def _document(page: View, tx: Transaction, run: Run, pager: Pager) -> dict[str, Any]:
    steps = pager.cut(latest_steps(tx, run.id, before=pager.before, limit=pager.one_more))
    told = latest(tx.connection, where=Filter(run_id=run.id), limit=_EVENTS)
    left = latest_artifacts(tx, run_id=run.id, limit=_ARTIFACTS)
    return {
        "run": shapes.Run.model_validate(run),
        "progress": progress(tx, run, count_steps(tx, [run.id])[run.id]),
        "controls": run_controls(run.id, run.status),
        "steps": [
            {
                **shapes.Step.model_validate(step).model_dump(),
                "attempts": [
                    shapes.Attempt.model_validate(each) for each in latest_attempts(tx, step.id, limit=_TRIES)
                ],
            }
            for step in steps.items
        ],
        "next": steps.next,
        "spent": spent(tx, page.api.runtime.settings, "run", run.id),
        "events": [shapes.Event.model_validate(event) for event in told],
        "artifacts": [shapes.Artifact.model_validate(each) for each in left],
    }
