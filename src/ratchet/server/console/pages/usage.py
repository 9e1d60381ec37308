"""What was used and what it cost, and what is left of budgets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from ratchet.server.console.drawing.bars import bars
from ratchet.server.console.rendering import Page
from ratchet.server.usage_shapes import budgets_of, usage_of

router = APIRouter()
Days = Annotated[int, Query(ge=1, le=366, description="how far back, today among them")]


@router.get("/usage")
def usage(page: Page, days: Days = 30) -> Response:
    with page.api.read() as tx:
        used = usage_of(page.api, tx, days)
        budgets = budgets_of(page.api, tx)
    by_day = {each["day"]: each for each in used["by_day"]}
    measure = "cost_usd" if used["total"]["cost_usd"] else "tokens"
    document = {
        "days": days,
        "usage": used,
        "budgets": budgets,
        "measure": measure,
        "bars": bars([(day, by_day.get(day, {measure: 0})[measure]) for day in used["period"]]),
    }
    return page.show("usage.html", document, title="Usage and budgets", live={"type": "session.ended"})
