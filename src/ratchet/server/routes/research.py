"""Research runs: what is text, a patch and the report; everything else is made from operations."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from fastapi.responses import HTMLResponse, PlainTextResponse

from ratchet.ledger.research import find_research
from ratchet.ledger.trials import get_trial
from ratchet.research.campaign import research_directory
from ratchet.research.operations import OPERATIONS
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.views import full_report, read_diff
from ratchet.server.operation import router_of
from ratchet.server.service import Api

router = router_of("research", OPERATIONS)
RunName = Annotated[
    str, Path(max_length=200, description="its number, or its name: the newest run of that name")
]
_MOST_DIFF = 2_000_000
_HARMLESS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
# Texts in it come from agents and candidates. Nothing is loaded, nothing runs, nobody frames it.
_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@router.get("/research/{run}/trials/{exp}/diff", response_class=PlainTextResponse)
def diff(api: Api, run: RunName, exp: str) -> PlainTextResponse:
    """How its files differ from those of its parent, as a patch; `X-Truncated` says that a very long one was cut."""
    with api.read() as tx:
        found = get_trial(tx, find_research(tx, run), trial_number(exp))
    patch = read_diff(research_directory(api.home, found.run_id), found)
    cut = {"X-Truncated": "true"} if len(patch) > _MOST_DIFF else {}
    return PlainTextResponse(patch[:_MOST_DIFF], headers={**_HARMLESS, **cut})


@router.get("/research/{run}/report", response_class=HTMLResponse)
def report(api: Api, run: RunName) -> HTMLResponse:
    """The run as one page that needs nothing else: scores, tree, leaderboard and evidence."""
    with api.read() as tx:
        run_id = find_research(tx, run)
        page = full_report(api.ledger, tx, run_id, research_directory(api.home, run_id))
    return HTMLResponse(page, headers={**_HARMLESS, "Content-Security-Policy": _POLICY})
