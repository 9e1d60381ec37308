"""What can be seen of a research run: its trials one by one, and the views of all of them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, PlainTextResponse

from ratchet.ledger.research import find_research
from ratchet.ledger.trial_pages import latest_trials
from ratchet.ledger.trials import get_trial
from ratchet.research import views
from ratchet.research.campaign import research_directory
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.views import evidence_of, full_report, leaderboard_of, read_diff
from ratchet.research.views.trials import record
from ratchet.server import research_shapes as shapes
from ratchet.server.fields import Cut, Limit, Page, Paging, TextFilter
from ratchet.server.routes.research import RunName
from ratchet.server.service import Api

router = APIRouter(tags=["research"])
_MOST_DIFF = 2_000_000
_HARMLESS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
# Texts in it come from agents and candidates. Nothing is loaded, nothing runs, nobody frames it.
_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@router.get("/research/{run}/trials", response_model=Page[shapes.Trial])
def trials(api: Api, run: RunName, pager: Paging, specialist: TextFilter = None) -> Cut[dict[str, Any]]:
    """The last one first, those in flight and the baseline among them. `before` takes a trial's number."""
    with api.read() as tx:
        found = latest_trials(
            tx,
            find_research(tx, run),
            specialist=specialist,
            before=pager.before,
            limit=pager.one_more,
        )
    page = pager.cut(found, number="number")
    return Cut([record(each) for each in page.items], page.next)


@router.get("/research/{run}/trials/{exp}", response_model=shapes.WholeTrial)
def trial(api: Api, run: RunName, exp: str) -> dict[str, Any]:
    """One trial with its measurements and, if it was kept, its certificate, which is checked anew."""
    with api.read() as tx:
        found = get_trial(tx, find_research(tx, run), trial_number(exp))
    return {**views.whole(found), **evidence_of(api.ledger, found)}


@router.get("/research/{run}/trials/{exp}/diff", response_class=PlainTextResponse)
def diff(api: Api, run: RunName, exp: str) -> PlainTextResponse:
    """How its files differ from those of its parent, as a patch; `X-Truncated` says that a very long one was cut."""
    with api.read() as tx:
        found = get_trial(tx, find_research(tx, run), trial_number(exp))
    patch = read_diff(research_directory(api.runtime.home, found.run_id), found)
    cut = {"X-Truncated": "true"} if len(patch) > _MOST_DIFF else {}
    return PlainTextResponse(patch[:_MOST_DIFF], headers={**_HARMLESS, **cut})


@router.get("/research/{run}/leaderboard", response_model=list[shapes.Leader])
def leaderboard(api: Api, run: RunName, limit: Limit = 20) -> Any:
    """What was kept last, the best first, with what else the task wants to see of it."""
    with api.read() as tx:
        return leaderboard_of(tx, find_research(tx, run), limit=limit).to_dict()


@router.get("/research/{run}/tree", response_model=shapes.Tree)
def tree(api: Api, run: RunName, trial: TextFilter = None) -> Any:
    """The trials that `trial` came from and its newest children; of the best, if none is named."""
    number = None if trial is None else trial_number(trial)
    with api.read() as tx:
        return views.tree(tx, find_research(tx, run), number).to_dict()


@router.get("/research/{run}/knowledge", response_model=shapes.Knowledge)
def knowledge(api: Api, run: RunName) -> Any:
    """The line of the best, what was tried last, and what was learned."""
    with api.read() as tx:
        return views.knowledge(tx, find_research(tx, run)).to_dict()


@router.get("/research/{run}/activity", response_model=list[shapes.Trial])
def activity(api: Api, run: RunName, specialist: TextFilter = None, limit: Limit = 30) -> Any:
    """What was tried last, without what could not be measured."""
    with api.read() as tx:
        found = views.recent_activity(tx, find_research(tx, run), specialist=specialist, limit=limit)
    return found.to_dict()


@router.get("/research/{run}/misses", response_model=list[shapes.NearMiss])
def misses(api: Api, run: RunName, limit: Limit = 10) -> Any:
    """What was nearly kept, and why it was not."""
    with api.read() as tx:
        return views.near_misses(tx, find_research(tx, run), limit=limit).to_dict()


@router.get("/research/{run}/yield", response_model=list[shapes.Yield])
def yields(api: Api, run: RunName) -> Any:
    """What each specialist has brought, and what it has cost."""
    with api.read() as tx:
        return views.yields(tx, find_research(tx, run)).to_dict()


@router.get("/research/{run}/cost", response_model=shapes.Cost)
def cost(api: Api, run: RunName) -> Any:
    """What the run has cost: in all, for each trial and keep, and by specialist."""
    with api.read() as tx:
        return views.cost(tx, find_research(tx, run)).to_dict()


@router.get("/research/{run}/lessons", response_model=list[shapes.Lesson])
def lessons(api: Api, run: RunName, limit: Limit = 30) -> Any:
    """What specialists have learned, newest first."""
    with api.read() as tx:
        return views.insights(tx, find_research(tx, run), limit=limit).to_dict()


@router.get("/research/{run}/calibration", response_model=shapes.Calibration)
def calibration(api: Api, run: RunName) -> Any:
    """What specialists expected of their last trials, and what came of them."""
    with api.read() as tx:
        return views.calibration(tx, find_research(tx, run)).to_dict()


@router.get("/research/{run}/report", response_class=HTMLResponse)
def report(api: Api, run: RunName) -> HTMLResponse:
    """The run as one page that needs nothing else: scores, tree, leaderboard and evidence."""
    with api.read() as tx:
        run_id = find_research(tx, run)
        page = full_report(api.ledger, tx, run_id, research_directory(api.runtime.home, run_id))
    return HTMLResponse(page, headers={**_HARMLESS, "Content-Security-Policy": _POLICY})
