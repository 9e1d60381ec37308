"""Runs of every kind: the list, the way to each one's own page, and a plain page for those that have none."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from ratchet.kernel import NotFound, RunStatus
from ratchet.ledger import EventFilter, Run, Transaction
from ratchet.ledger.agents import list_agents
from ratchet.ledger.artifacts import latest as latest_artifacts
from ratchet.ledger.attention import count_steps
from ratchet.ledger.events import last_id, latest
from ratchet.ledger.projects import list_projects
from ratchet.ledger.protocols import is_protocol
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run, latest_attempts, latest_steps, list_runs
from ratchet.runtime.operations import approvals
from ratchet.runtime.operations import runs as of_runs
from ratchet.server.console.access import ROOT
from ratchet.server.console.formats import spent
from ratchet.server.console.forms import add_buttons, run_controls
from ratchet.server.console.page import Page, View
from ratchet.server.fields import Id, IdFilter, Pager, Paging, TextFilter
from ratchet.server.operation import shown
from ratchet.server.overview import KINDS, ended, going_on, lately, needed, progress
from ratchet.server.routes.events import Where
from ratchet.workflows.operations import WorkflowRunAnswer

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
    document = {
        "runs": [shown(each).model_dump(exclude={"spec", "result"}) for each in found.items],
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
            return f"/workflows/runs/{run.id}" if WorkflowRunAnswer.of(run).action in _OF_WORKFLOWS else None
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
    told = latest(tx.connection, where=EventFilter(run_id=run.id), limit=_EVENTS)
    left = latest_artifacts(tx, run_id=run.id, limit=_ARTIFACTS)
    return {
        "run": shown(run),
        "progress": progress(tx, run, count_steps(tx, [run.id])[run.id]),
        "controls": run_controls(run.id, run.status),
        "steps": [
            {
                **shown(step).model_dump(),
                "attempts": [shown(each) for each in latest_attempts(tx, step.id, limit=_TRIES)],
            }
            for step in steps.items
        ],
        "next": steps.next,
        "spent": spent(tx, page.api.runtime.settings, "run", run.id),
        "events": [shown(event) for event in told],
        "artifacts": [shown(each) for each in left],
    }


@router.get("/events")
def events(page: Page, pager: Paging, where: Where) -> Response:
    found = of_runs.events_where(page.api, pager, where)
    filters = asdict(where)
    document = {
        "events": [shown(each) for each in found.items],
        "next": found.next,
        "filters": filters,
        "filtered": any(value is not None for value in filters.values()),
    }
    newest = pager.before is None
    live = {name: value for name, value in filters.items() if value is not None} if newest else None
    return page.show("events.html", document, title="Events", live=live)


add_buttons(router, (approvals.approve, approvals.refuse), "/approvals/{approval_id}", "/")
_LATELY = 12
_ENDED = 6
_FIRST: tuple[dict[str, Any], ...] = (
    {
        "name": "All of it",
        "text": "All four flows in a minute, without a model.",
        "commands": ["ratchet demo"],
    },
    {
        "name": "Research",
        "text": "A program gets better by trials, and every gain is proved.",
        "commands": [
            "ratchet research tasks",
            "ratchet research run circle_packing --engine search --trials 20",
        ],
    },
    {
        "name": "Workflows",
        "text": "Steps run side by side, each in a sandbox.",
        "commands": ["ratchet tool list", 'ratchet workflow new "Count the words of a text."'],
    },
    {
        "name": "Agents",
        "text": "A service is rewritten while it serves.",
        "commands": ["ratchet engine check", 'ratchet agent create greeter "Greet people by name."'],
    },
    {
        "name": "Protocols",
        "text": "Planned changes of a repository, judged step by step.",
        "commands": ["ratchet project add .", 'ratchet protocol new "Add a test for the parser." --run'],
    },
)


@router.get("/")
def home(page: Page) -> Response:
    with page.api.read() as tx:
        running = going_on(page.api, tx)
        document = {
            "running": running,
            "kinds": {kind: sum(run["kind"] == kind for run in running) for kind in KINDS},
            "ended": ended(page.api, tx, limit=_ENDED),
            "needs": [asdict(need) for need in needed(page.api, tx)],
            "lately": [shown(event) for event in lately(page.api, tx, limit=_LATELY)],
            "first": [] if _is_used(tx) else _FIRST,
            "events": last_id(tx.connection),
        }
    return page.show("home.html", document, title="Home", live={})


def _is_used(tx: Transaction) -> bool:
    """Whether anything was ever begun here."""
    return bool(list_runs(tx, limit=1) or list_projects(tx, limit=1) or list_agents(tx, limit=1))
