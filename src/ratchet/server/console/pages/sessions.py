"""Sessions: every use of an engine, and each as it went, entry by entry."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from ratchet.server.console.rendering import Page, View
from ratchet.server.paging import Paging
from ratchet.server.session_shapes import Entry, Session, prompt_of
from starlette.responses import Response

from ratchet.engines.transcript import TranscriptPage, read_transcript
from ratchet.kernel import NotFound
from ratchet.ledger.owners import projects_of_runs
from ratchet.ledger.runs import get_run
from ratchet.ledger.sessions import SessionRow, get_session, list_sessions
from ratchet.server.console.evidence import excerpt
from ratchet.server.fields import MAX_ID, IdFilter, TextFilter
from ratchet.server.project_scope import enter

router = APIRouter()
_ENTRIES = 100
SessionId = Annotated[int, Path(ge=1, le=MAX_ID)]
After = Annotated[int, Query(ge=0, le=MAX_ID, description="go on behind this line of the transcript")]


@router.get("/sessions")
def sessions(
    page: Page,
    pager: Paging,
    run_id: IdFilter = None,
    attempt_id: IdFilter = None,
    engine: TextFilter = None,
    failed: bool = False,
) -> Response:
    with page.api.read() as tx:
        found = list_sessions(
            tx,
            run_id=run_id,
            attempt_id=attempt_id,
            engine=engine,
            failed=failed,
            before=pager.before,
            limit=pager.one_more,
        )
        projects = projects_of_runs(tx, {each.run_id for each in found if each.run_id is not None})
        hidden = page.api.caller.hidden(tx, projects.values())
    cut = pager.without(found, lambda each: projects.get(each.run_id or 0) in hidden)
    document = {
        "sessions": [Session.of(each) for each in cut.items],
        "next": cut.next,
        "run_id": run_id,
        "attempt_id": attempt_id,
        "engine": engine,
        "failed": failed,
    }
    live = {"type": "session.*"} if pager.before is None else None
    return page.show("sessions.html", document, title="Sessions", live=live)


@router.get("/sessions/{session_id}")
def session(page: Page, session_id: SessionId, after: After = 0, search: TextFilter = None) -> Response:
    """What was said, a page at a time; with `search` only what contains it."""
    with page.api.read() as tx:
        found = get_session(tx, session_id)
        if found.run_id is not None:
            enter(page.api, tx, "run", found.run_id)
        prompt = prompt_of(tx, found)
        run = None if found.run_id is None else get_run(tx, found.run_id)
    read = _read(page, found, after, search)
    document = {
        "session": Session.of(found),
        "run": None
        if run is None
        else {
            "id": run.id,
            "kind": run.kind,
            "name": run.name,
            "status": run.status,
            "simulated": run.simulated or run.used_recording,
        },
        "prompt": None if prompt is None else excerpt(page.api, prompt.sha256),
        "search": search,
        "after": after,
        "transcript": None if read is None else _shown(read),
    }
    return page.show("session.html", document, title=f"Session {session_id}")


def _read(page: View, found: SessionRow, after: int, search: str | None) -> TranscriptPage | None:
    """Nothing where no transcript was kept, or where it has been removed since."""
    if found.transcript is None:
        return None
    try:
        with page.api.ledger.artifacts.open(found.transcript) as file:
            return read_transcript(file, after=after, limit=_ENTRIES, search=search)
    except NotFound:
        return None


def _shown(read: TranscriptPage) -> dict[str, Any]:
    return {
        "entries": [Entry.model_validate(each) for each in read.entries],
        "next": read.next,
        "lines": read.lines,
        "matches": read.matches,
    }
