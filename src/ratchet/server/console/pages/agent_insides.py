"""The inside of an agent: what two versions differ in, its state and its past, and what its servers logged."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from starlette.responses import Response

from ratchet.agents import views
from ratchet.agents.contract import Role
from ratchet.kernel import Conflict
from ratchet.server import agent_shapes as shapes
from ratchet.server.console.acting import Acting
from ratchet.server.console.cutting import clean, cut
from ratchet.server.console.door import ROOT
from ratchet.server.console.rendering import Page, View
from ratchet.server.fields import MAX_ID, IdFilter, TextFilter
from ratchet.server.paging import Paging
from ratchet.server.routes import agent_calls, agent_state
from ratchet.server.routes import agents as routes
from ratchet.server.routes.agents import AgentName

router = APIRouter()
_LAST_VERSIONS = 50
Lines = Annotated[int, Query(ge=1, le=2_000)]


@router.get("/agents/{name}/diff")
def diff(page: Page, name: AgentName, old: TextFilter = None, new: TextFilter = None) -> Response:
    """Two versions beside each other; the current one and what it was made from, if none are named."""
    versions = _versions(page, name)
    try:
        compared: Any = clean(routes.diff(page.api, name, old, new))
        why_not = None
    except Conflict as error:
        # A first version was made from nothing: two must be chosen.
        compared, why_not = None, str(error)
    document = {
        "agent": name,
        "versions": versions,
        "old": old,
        "new": new,
        "compared": compared and shapes.Comparison.model_validate(compared),
        "why_not": why_not,
    }
    return page.show("agent_diff.html", document, title=f"Versions of {name}")


@router.get("/agents/{name}/state")
def state(
    page: Page, name: AgentName, pager: Paging, version: TextFilter = None, at: IdFilter = None
) -> Response:
    """The state as it is, or as it was after a change, and all its changes."""
    shown, why_not = None, None
    try:
        shown = cut(agent_state.state(page.api, name, version, at))
    except Conflict as error:
        # It is missing or spoiled, and an earlier one can be brought back here.
        why_not = f"{error}"
    changes = agent_state.history(page.api, name, pager, version)
    document = {
        "agent": name,
        "agent_version": version,
        "at": at,
        "state": shown,
        "why_not": clean(why_not),
        "changes": [
            {
                **shapes.Change.model_validate(each).model_dump(mode="json"),
                "why_not": "it is the present state" if number == 0 and pager.before is None else None,
            }
            for number, each in enumerate(changes.items)
        ],
        "next": changes.next,
        "versions": _versions(page, name),
    }
    return page.show("agent_state.html", document, title=f"State of {name}", live={"type": "agent.state"})


@router.post("/agents/{name}/state/actions/restore")
def restore(
    page: Page,
    name: AgentName,
    _: Acting,
    number: Annotated[int, Form(ge=1, le=MAX_ID)],
    version: Annotated[str | None, Form(max_length=200)] = None,
) -> Response:
    agent_state.restore(page.api, name, agent_state.Restoring(number=number, version=version))
    return page.done(f"The state after change {number} is back.", f"{ROOT}/agents/{name}/state")


@router.get("/agents/{name}/logs")
def logs(
    page: Page,
    name: AgentName,
    version: TextFilter = None,
    server: Role = Role.RUNNER,
    printed: bool = False,
    lines: Lines = 200,
) -> Response:
    """The end of what a server logged, or of what it printed past its log."""
    found = agent_calls.logs(page.api, name, version, server, printed, lines)
    document = {
        "agent": name,
        "agent_version": version,
        "log": shapes.LogLines.model_validate(clean(found)),
        "text": "\n".join(clean(found["lines"])),
        "servers": [str(each) for each in Role],
        "lines": lines,
        "versions": _versions(page, name),
    }
    return page.show("agent_logs.html", document, title=f"Log of {name}", live={"type": "agent.*"})


def _versions(page: View, name: str) -> list[dict[str, Any]]:
    """What there is to choose from."""
    with page.api.read() as tx:
        found = views.versions(tx, name, limit=_LAST_VERSIONS)
    return [{key: each[key] for key in ("version", "commit", "is_current", "created_at")} for each in found]
