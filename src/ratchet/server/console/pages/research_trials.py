"""The trials of a research run, and everything that is known of one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from ratchet.server.console.rendering import Page
from ratchet.server.paging import Paging
from starlette.responses import Response

from ratchet.kernel import NotFound
from ratchet.ledger import Run, Transaction
from ratchet.ledger.research import find_research, get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.sessions import of_attempts
from ratchet.ledger.trial_pages import children
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import find_trial, get_trial
from ratchet.research.campaign import research_directory
from ratchet.research.evidence import evidence_of, read_diff
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.views import pairs, whole
from ratchet.research.views.specialists import expected_delta
from ratchet.research.views.trials import record
from ratchet.server import research_shapes as shapes
from ratchet.server.fields import TextFilter
from ratchet.server.routes import research_views as api_of_views
from ratchet.server.routes.research import RunName
from ratchet.server.service import Access

router = APIRouter()
_CHILDREN = 30
_MOST_DIFF = 500_000


@router.get("/research/{run}/trials")
def trials(page: Page, run: RunName, pager: Paging, specialist: TextFilter = None) -> Response:
    found = api_of_views.trials(page.api, run, pager, specialist)
    with page.api.read() as tx:
        of_run = head(get_run(tx, find_research(tx, run)))
    document = {"run": of_run, "trials": found.items, "next": found.next, "specialist": specialist}
    live = {"run_id": of_run["id"]} if pager.before is None else None
    return page.show("research_trials.html", document, title=f"Trials of {of_run['name']}", live=live)


@router.get("/research/{run}/trials/{exp}")
def trial(page: Page, run: RunName, exp: str) -> Response:
    with page.api.read() as tx:
        found = get_trial(tx, find_research(tx, run), trial_number(exp))
        document = {
            "run": head(get_run(tx, found.run_id)),
            "score_field": get_standing(tx, found.run_id).score_field,
            "expected": _expected(found),
            **_family(tx, found),
            "sessions": _sessions(tx, found),
        }
    evidence = evidence_of(page.api.ledger, found)
    document |= {
        "trial": shapes.WholeTrial.model_validate({**whole(found), **evidence}),
        "pairs": pairs(evidence["certificate_content"]),
        "diff": _diff(page.api, found),
    }
    # One that has ended stays as it is.
    live = {"run_id": found.run_id} if found.status is None else None
    return page.show(
        "research_trial.html", document, title=f"Trial {found.exp_id} of {document['run']['name']}", live=live
    )


def head(run: Run) -> dict[str, Any]:
    """As much of the run as stands over a page about a part of it."""
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "simulated": run.simulated or run.used_recording,
    }


def _expected(trial: Trial) -> float | None:
    """What its specialist expected, as a number, if the text names one."""
    known = trial.score is not None and trial.delta is not None
    return expected_delta(trial.expected_delta, trial.score - trial.delta if known else None)  # type: ignore[operator]


def _family(tx: Transaction, trial: Trial) -> dict[str, Any]:
    parent = None if trial.parent is None else find_trial(tx, trial.run_id, trial.parent)
    newest = children(tx, trial.run_id, trial.number, limit=_CHILDREN + 1)
    return {
        "parent": None if parent is None else record(parent),
        "children": [record(each) for each in newest[:_CHILDREN]],
        "more_children": len(newest) > _CHILDREN,
    }


def _sessions(tx: Transaction, trial: Trial) -> list[dict[str, Any]]:
    """The sessions of the attempt that handed it in."""
    found = [] if trial.attempt_id is None else of_attempts(tx, [trial.attempt_id])
    return [
        {
            "id": each.id,
            "role": each.role,
            "engine": each.engine,
            "model": each.model,
            "failure": each.failure,
        }
        for each in found
    ]


def _diff(api: Access, trial: Trial) -> dict[str, Any] | None:
    """Its patch against its parent; nothing of a run whose files are not here."""
    try:
        patch = read_diff(research_directory(api.runtime.home, trial.run_id), trial)
    except NotFound:
        return None
    return {"text": patch[:_MOST_DIFF], "cut": len(patch) > _MOST_DIFF}
