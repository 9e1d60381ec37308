"""Agents: their versions, what people told them and what became of it, and choosing between versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from ratchet.agents import views
from ratchet.agents.addresses import addresses
from ratchet.agents.architect import Severity
from ratchet.agents.contract import Role
from ratchet.kernel import Conflict, RunStatus
from ratchet.ledger import Run
from ratchet.ledger.agents import AgentStatus, VersionStatus
from ratchet.operations import Operation
from ratchet.runtime.operations import runs as of_runs
from ratchet.server import agent_shapes as shapes
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.buttons import run_controls
from ratchet.server.console.drawings import draw_versions
from ratchet.server.console.formats import clean, cut
from ratchet.server.console.page import Page, View
from ratchet.server.fields import MAX_ID, EngineName, Id, IdFilter, Limit, Pager, Paging, Text, TextFilter
from ratchet.server.routes import agent_calls, agent_state
from ratchet.server.routes import agents as routes
from ratchet.server.routes.agents import AgentName

router = APIRouter()
PLACE = f"{ROOT}/agents"
_LAST_RUNS = 20
_LONGEST_CHECK = 5_000
_ACTIONS: Mapping[str, Operation[..., Run]] = {
    "pause": of_runs.pause,
    "resume": of_runs.resume,
    "cancel": of_runs.cancel,
}
Version = Annotated[Text, Form()]
Ticked = Annotated[bool, Form()]


@router.get("/agents")
async def agents(page: Page, after: TextFilter = None, limit: Limit = 50) -> Response:
    found = await run_in_threadpool(_listed, page, after or "", limit + 1)
    document = {
        # The host lives in this event loop, so it is asked here and not in a thread.
        "agents": [{**each, "health": _health(page, each)} for each in found[:limit]],
        "next": found[limit - 1]["name"] if len(found) > limit else None,
    }
    return page.show("agents.html", document, title="Agents", live={"type": "agent.*"})


@router.post("/agents/actions/create")
def create(
    page: Page,
    _: Acting,
    name: Annotated[Text, Form()],
    description: Annotated[str, Form(max_length=100_000)],
    engine: Annotated[EngineName | None, Form()] = None,
    model: Annotated[Text | None, Form()] = None,
    simulated: Ticked = False,
) -> Response:
    new = routes.NewAgent(name=name, description=description, engine=engine, model=model, simulated=simulated)
    run_id = routes.start_creation(page.api, new)
    return page.done(f"{name} is being made, by run {run_id}.", f"{PLACE}/{name}")


@router.get("/agents/{name}")
async def agent(page: Page, name: AgentName, pager: Paging) -> Response:
    found = await routes.agent(page.api, name)
    document = await run_in_threadpool(_document, page, found, pager)
    document["health"] = _health(page, found)
    return page.show("agent.html", document, title=name, live={})


@router.post("/agents/{name}/actions/feedback")
def feedback(
    page: Page,
    name: AgentName,
    _: Acting,
    message: Annotated[str, Form(max_length=1_000_000)],
    severity: Annotated[Severity, Form()] = Severity.NORMAL,
    version: Annotated[Text | None, Form()] = None,
    engine: Annotated[EngineName | None, Form()] = None,
    simulated: Ticked = False,
) -> Response:
    """Tell it what was wrong, or what is wanted."""
    given = routes.Feedback(
        message=message, severity=severity, version=version, engine=engine, simulated=simulated
    )
    run_id = routes.start_feedback(page.api, name, given)
    return page.done(f"Run {run_id} takes it up.", f"{PLACE}/{name}")


@router.post("/agents/{name}/actions/rollback")
def rollback(
    page: Page, name: AgentName, _: Acting, version: Version, carry_state: Ticked = False
) -> Response:
    """Take it to any version, with that version's own state or with the present one."""
    found = routes.rollback(page.api, name, routes.Rollback(version=version, carry_state=carry_state))
    return page.done(f"{name} is at {found['version']}.", f"{PLACE}/{name}")


@router.post("/agents/{name}/actions/release")
def release(page: Page, name: AgentName, _: Acting, version: Version) -> Response:
    """Take a version out of quarantine, and let the address lead to it."""
    found = routes.promote(page.api, name, routes.Promotion(version=version, force=True))
    return page.done(f"{name} is at {found['version']}.", f"{PLACE}/{name}")


@router.post("/agents/{name}/actions/pin")
def pin(page: Page, name: AgentName, _: Acting, version: Version) -> Response:
    found = routes.pin(page.api, name, routes.Choice(version=version))
    return page.done(f"{name} is held at {found['version']}.", f"{PLACE}/{name}")


@router.post("/agents/{name}/actions/unpin")
def unpin(page: Page, name: AgentName, _: Acting) -> Response:
    routes.unpin(page.api, name)
    return page.done(f"{name} follows new versions.", f"{PLACE}/{name}")


@router.post("/agents/{name}/actions/delete")
def delete(page: Page, name: AgentName, _: Acting) -> Response:
    routes.delete(page.api, name)
    return page.done(f"{name} is deleted; its directory is put away.", PLACE)


@router.post("/agents/{name}/runs/{run_id}/actions/{action}")
def control(
    page: Page, name: AgentName, run_id: Id, _: Acting, action: Literal["pause", "resume", "cancel"]
) -> Response:
    """Pause, resume or cancel what its Architect does."""
    found = _ACTIONS[action](page.api, run_id)
    return page.done(f"Run {run_id} is {found.status}.", f"{PLACE}/{name}")


def _listed(page: View, after: str, limit: int) -> list[dict[str, Any]]:
    runtime = page.api.runtime
    with page.api.read() as tx:
        found = views.agents(tx, after=after, limit=limit)
    return [
        {
            **shapes.Agent.model_validate(each).model_dump(mode="json"),
            "address": addresses(runtime.home, runtime.settings.agents, each["name"]),
        }
        for each in found
    ]


def _health(page: View, agent: Mapping[str, Any]) -> str:
    """How the current version is, as the host in this process sees it: `up`, `starting`, `crashed`, …"""
    if agent["status"] != AgentStatus.READY:
        return str(agent["status"])
    served = routes.serving(page.api.service.host, agent["name"])
    if served is None:
        return "served_elsewhere" if agent["address"]["is_up"] else "not_served"
    return next((str(each["state"]) for each in served if each["commit"] == agent["commit"]), "resting")


def _document(page: View, found: Mapping[str, Any], pager: Pager) -> dict[str, Any]:
    name = found["name"]
    with page.api.read() as tx:
        versions = pager.cut(views.versions(tx, name, before=pager.before, limit=pager.one_more))
        runs = views.agent_runs(tx, name, limit=_LAST_RUNS)
        checks = None if found["current"] is None else views.checks(tx, page.api.ledger.artifacts, name)
    listed = [shapes.ListedVersion.model_validate(each).model_dump(mode="json") for each in versions.items]
    ready = _not_ready(found)
    return {
        "agent": shapes.ServedAgent.model_validate(found),
        "versions": [{**each, "why_not": _why_not(each, found)} for each in listed],
        "next": versions.next,
        "drawing": draw_versions(f"{PLACE}/{name}", listed),
        "runs": [_run(each) for each in runs],
        "checks": None if checks is None else _checks(checks),
        "why_not": {"feedback": ready, "unpin": None if found["pinned"] else "it is not pinned"},
    }


def _not_ready(agent: Mapping[str, Any]) -> str | None:
    if agent["status"] == AgentStatus.READY:
        return None
    return f"the agent is {agent['status']}: {agent['reason'] or 'it has no version yet'}"


def _why_not(version: Mapping[str, Any], agent: Mapping[str, Any]) -> dict[str, str | None]:
    """Why an action on a version cannot be done now; None where it can."""
    quarantined = version["status"] == VersionStatus.QUARANTINED
    bad = f"it is quarantined: {version['reason']}" if quarantined else None
    here = "it is the current version" if version["is_current"] else None
    return {
        "rollback": _not_ready(agent) or bad or here,
        "pin": _not_ready(agent) or bad or ("it is pinned here" if here and agent["pinned"] else None),
        "release": _not_ready(agent) or (None if quarantined else "it is not quarantined"),
    }


def _run(found: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked, what was decided, and what can be done while it goes on."""
    result = found["result"] if isinstance(found["result"], dict) else {}
    status = RunStatus(found["status"])
    shown = shapes.AgentRun.model_validate({**found, "result": None}).model_dump(mode="json")
    decided = {
        key: result.get(key) for key in ("decision", "version", "commit", "summary", "promoted", "quarantine")
    }
    return {
        **shown,
        **clean(decided),
        "controls": None if status.final else run_controls(found["run"], status),
    }


def _checks(found: Mapping[str, Any]) -> dict[str, Any]:
    sections = [
        {
            "check": each["check"],
            "outcome": each.get("outcome"),
            "seconds": each.get("seconds"),
            "calls": each.get("calls"),
            "details": cut(
                {key: value for key, value in each.items() if key not in ("check", "outcome", "seconds")},
                _LONGEST_CHECK,
            ),
        }
        for each in found["checks"]
    ]
    shown: dict[str, Any] = clean({**found, "checks": sections})
    return shown


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
