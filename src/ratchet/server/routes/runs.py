"""Runs: looking at them, pausing, resuming and cancelling them."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from ratchet.kernel import RunStatus
from ratchet.ledger import Artifact, Event, Filter, Run, Step
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger import events as ledger_events
from ratchet.ledger.runs import get_run, latest_steps, list_runs
from ratchet.runtime import cancel_run, pause_run, resume_run
from ratchet.server import shapes
from ratchet.server.fields import Id, IdFilter, TextFilter
from ratchet.server.paging import Cut, Page, Paging
from ratchet.server.service import Access, Api

router = APIRouter(tags=["runs"])


@router.get("/runs", response_model=Page[shapes.Run])
def runs(
    api: Api,
    pager: Paging,
    kind: TextFilter = None,
    status: RunStatus | None = None,
    project_id: IdFilter = None,
) -> Cut[Run]:
    """Newest first. Runs of projects whose token was not shown are left out."""
    project_id = api.caller.project_id or project_id
    with api.read() as tx:
        found = list_runs(
            tx, kind=kind, status=status, project_id=project_id, before=pager.before, limit=pager.one_more
        )
        hidden = api.caller.hidden(tx, (run.project_id for run in found))
    return pager.without(found, lambda run: run.project_id in hidden)


@router.get("/runs/{run_id}", response_model=shapes.Run)
def run(api: Api, run_id: Id) -> Run:
    """One run: its status, its reason if it stands, and its result."""
    with api.read() as tx:
        return get_run(tx, run_id)


@router.get("/runs/{run_id}/steps", response_model=Page[shapes.Step])
def steps(api: Api, run_id: Id, pager: Paging) -> Cut[Step]:
    """The last step first; `position` is its place in the run."""
    with api.read() as tx:
        get_run(tx, run_id)
        return pager.cut(latest_steps(tx, run_id, before=pager.before, limit=pager.one_more))


@router.get("/runs/{run_id}/events", response_model=Page[shapes.Event])
def events(api: Api, run_id: Id, pager: Paging) -> Cut[Event]:
    """Newest first."""
    with api.read() as tx:
        get_run(tx, run_id)
        where = Filter(run_id=run_id)
        return pager.cut(
            ledger_events.latest(tx.connection, before=pager.before, where=where, limit=pager.one_more)
        )


@router.get("/runs/{run_id}/artifacts", response_model=Page[shapes.Artifact])
def artifacts(api: Api, run_id: Id, pager: Paging) -> Cut[Artifact]:
    """Newest first."""
    with api.read() as tx:
        get_run(tx, run_id)
        return pager.cut(
            ledger_artifacts.latest(tx, run_id=run_id, before=pager.before, limit=pager.one_more)
        )


@router.post("/runs/{run_id}/actions/pause", response_model=shapes.Run)
def pause(api: Api, run_id: Id) -> Run:
    """Stand still: its worker is asked to stop, what it has recorded stays. 409 when it cannot be paused."""
    return _act(api, pause_run, run_id)


@router.post("/runs/{run_id}/actions/resume", response_model=shapes.Run)
def resume(api: Api, run_id: Id) -> Run:
    """Go on with a paused or blocked run; 409 for any other."""
    return _act(api, resume_run, run_id)


@router.post("/runs/{run_id}/actions/cancel", response_model=shapes.Run)
def cancel(api: Api, run_id: Id) -> Run:
    """End a run for good, with all its unfinished steps. Cancelling it again changes nothing."""
    return _act(api, cancel_run, run_id)


def _act(api: Access, action: Callable[..., None], run_id: int) -> Run:
    with api.write() as tx:
        action(tx, api.runtime, run_id)
        return get_run(tx, run_id)
