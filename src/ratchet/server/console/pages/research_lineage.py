"""The tree of trials of a run: a list around one of them, and the data of the drawing of all."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import JSONResponse, Response

from ratchet.ledger import Filter
from ratchet.ledger.events import latest
from ratchet.ledger.research import find_research, get_standing
from ratchet.ledger.runs import get_run
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.views import tree, whole_tree
from ratchet.server.console.pages.research_trials import head
from ratchet.server.console.rendering import Page
from ratchet.server.fields import TextFilter
from ratchet.server.routes.research import RunName

router = APIRouter()
# A browser may keep it, and asks each time whether it still holds.
_KEPT = {"Cache-Control": "private, no-cache"}
After = Annotated[int, Query(ge=-1, le=2**31 - 1, description="go on where `next` of a page said")]


@router.get("/research/{run}/lineage")
def lineage(page: Page, run: RunName, trial: TextFilter = None) -> Response:
    number = None if trial is None else trial_number(trial)
    with page.api.read() as tx:
        run_id = find_research(tx, run)
        document: dict[str, Any] = {
            "run": head(get_run(tx, run_id)),
            "best": get_standing(tx, run_id).best,
            "chosen": trial,
            "tree": tree(tx, run_id, number).to_dict(),
        }
    title = f"Lineage of {document['run']['name']}"
    return page.show("research_lineage.html", document, title=title, live={"run_id": run_id})


@router.get("/research/{run}/lineage/data")
def data(
    page: Page, run: RunName, after: After = -1, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """The tree in pages of columns. A page is as good as new until something happens in the run."""
    with page.api.read() as tx:
        run_id = find_research(tx, run)
        # Read before the trials: what comes in between makes the next answer new once too often, never too seldom.
        newest = latest(tx.connection, where=Filter(run_id=run_id), limit=1)
        tag = f'"{run_id}-{after}-{newest[0].id if newest else 0}"'
        if if_none_match == tag:
            return Response(status_code=304, headers={**_KEPT, "ETag": tag})
        content = whole_tree(tx, run_id, after=after)
    return JSONResponse(content, headers={**_KEPT, "ETag": tag})
