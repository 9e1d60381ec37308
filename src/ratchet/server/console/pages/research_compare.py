"""Research runs side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from ratchet.server.console.drawing.plot import draw_lines
from ratchet.server.console.rendering import Page
from starlette.responses import Response

from ratchet.ledger.research import find_research
from ratchet.ledger.runs import list_runs
from ratchet.research.views import compare
from ratchet.research.views._status import KEEPS

router = APIRouter()
_MOST = 8
_OFFERED = 20
Names = Annotated[
    list[Annotated[str, Query(max_length=200)]],
    Query(max_length=_MOST, description="a run, by its number or its name"),
]


@router.get("/research/compare")
def comparison(page: Page, run: Names = []) -> Response:  # noqa: B006 - FastAPI copies it
    with page.api.read() as tx:
        chosen = list(dict.fromkeys(find_research(tx, each) for each in run))
        found = compare(tx, chosen)
        offered = list_runs(tx, kind="research", limit=_OFFERED)
    names = {each.id: each.name for each in offered} | {
        each.run.run.id: each.run.run.name for each in found.rows
    }
    document = {
        **found.to_dict(),
        "plot": draw_lines([each.run for each in found.rows]) if found.rows else None,
        "note": f"The newest {KEEPS:,} that each has kept, thinned where they are many.",
        "choices": [
            {"run": number, "name": names[number], "chosen": number in chosen} for number in sorted(names)
        ],
        "most": _MOST,
    }
    return page.show("research_compare.html", document, title="Compare runs", live={} if chosen else None)
