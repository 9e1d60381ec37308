"""Agents: their versions, what people told them and what became of it, and choosing between versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Query
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from ratchet.agents import judge_operations as of_judges
from ratchet.agents import operations as of_agents
from ratchet.agents import views
from ratchet.agents.addresses import addresses
from ratchet.agents.checks.evals import arguments_of
from ratchet.agents.contract import Role
from ratchet.agents.operations import ServedAgent
from ratchet.agents.views import AgentAnswer, AgentRunAnswer, ListedVersion
from ratchet.kernel import Conflict, NotFound
from ratchet.ledger.agents import AgentStatus, VersionStatus, get_agent
from ratchet.ledger.questions import ApprovalStatus, get_approval
from ratchet.operations import Listing, NameWindow
from ratchet.runtime.operations import approvals
from ratchet.runtime.operations import runs as of_runs
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.drawings import draw_versions
from ratchet.server.console.formats import clean, cut
from ratchet.server.console.forms import add_buttons, run_controls
from ratchet.server.console.page import Page, View
from ratchet.server.fields import Id, IdFilter, Limit, Pager, Paging, Text, TextFilter
from ratchet.server.operation import shown

router = APIRouter()
PLACE = f"{ROOT}/agents"
_LAST_RUNS = 20
_LONGEST_CHECK = 5_000
AgentName = Annotated[str, Path(max_length=200)]
add_buttons(router, {"create": of_agents.create}, "/agents", "/agents/{name}")
add_buttons(
    router,
    (of_agents.feedback, of_agents.rollback, of_agents.pin, of_agents.unpin),
    "/agents/{name}",
)
add_buttons(router, {"delete": of_agents.delete}, "/agents/{name}", "/agents")
add_buttons(router, (of_agents.restore,), "/agents/{name}/state")
add_buttons(
    router,
    (of_runs.pause, of_runs.resume, of_runs.cancel),
    "/agents/{name}/runs/{run_id}",
    "/agents/{name}",
)


add_buttons(
    router,
    (approvals.approve, approvals.refuse),
    "/agents/{name}/approvals/{approval_id}",
    "/agents/{name}",
)


add_buttons(
    router, {"remove": of_judges.remove_eval}, "/agents/{name}/evals/{eval_id}", "/agents/{name}/evals"
)


@router.get("/agents/{name}/evals")
def evals(page: Page, name: AgentName, pager: Paging) -> Response:
    """What every change is held to, and the calls that clients made."""
    calls = of_judges.calls(page.api, pager, name)
    document = {
        "agent": name,
        "evals": [clean(each) for each in _dumped(of_judges.list_evals(page.api, name))],
        "calls": [clean(each) for each in _dumped(calls)],
        "next": calls.next,
    }
    return page.show("agent_evals.html", document, title=f"Evals of {name}", live={"type": "agent.eval"})


@router.post("/agents/{name}/evals/actions/add")
def add_eval(
    page: Page,
    name: AgentName,
    _: Acting,
    tool: Annotated[Text, Form()],
    arguments: Annotated[str, Form()] = "",
    expect: Annotated[str, Form()] = "",
) -> Response:
    given, wanted = (arguments_of(text) if text.strip() else {} for text in (arguments, expect))
    made = of_judges.add_eval(page.api, name, tool, given, wanted)
    return page.done(f"Eval {made.id} is added.", f"{PLACE}/{name}/evals")


@router.post("/agents/{name}/calls/{call_id}/actions/eval")
def record_eval(page: Page, name: AgentName, call_id: Id, _: Acting) -> Response:
    made = of_judges.record_eval(page.api, name, call_id)
    return page.done(f"Eval {made.id} is added.", f"{PLACE}/{name}/evals")


@router.get("/agents")
async def agents(page: Page, after: TextFilter = None, limit: Limit = 50) -> Response:
    found = await run_in_threadpool(of_agents.list_, page.api, NameWindow(after or "", limit))
    document = {
        # The host lives in this event loop, so it is asked here and not in a thread.
        "agents": [_listed(page, each) for each in found.items],
        "next": found.next,
    }
    return page.show("agents.html", document, title="Agents", live={"type": "agent.*"})


@router.get("/agents/{name}")
async def agent(page: Page, name: AgentName, pager: Paging) -> Response:
    found = await of_agents.show(page.api, name)
    document = await run_in_threadpool(_document, page, found, pager)
    document["health"] = _health(page, found, found.address.is_up)
    return page.show("agent.html", document, title=name, live={})


@router.get("/agents/{name}/approvals/{approval_id}")
def change(page: Page, name: AgentName, approval_id: Id) -> Response:
    """One change that a person decides on: what it breaks, the diff, what the judges found, and what it cost."""
    with page.api.read() as tx:
        get_agent(tx, name)
        found = get_approval(tx, approval_id)
        data = found.data if isinstance(found.data, dict) else {}
        if data.get("agent") != name:
            raise NotFound("approval", approval_id)
        checks = views.sections(page.api.ledger.artifacts, data.get("report"))
    document = {
        "agent": name,
        "approval": shown(found),
        "change": clean({key: value for key, value in data.items() if key != "diff"}),
        "diff": clean(data.get("diff") or ""),
        "checks": _checks({"checks": checks})["checks"],
        "cost": spent_words(data.get("cost")),
        "why_not": None if found.status is ApprovalStatus.PENDING else f"it is {found.status}",
    }
    return page.show("agent_change.html", document, title=f"Change of {name}", live={"type": "approval.*"})


def spent_words(cost: Any) -> str:
    """What the sessions of an attempt used."""
    if not isinstance(cost, Mapping):
        return "unknown"
    tokens = cost.get("input_tokens", 0) + cost.get("output_tokens", 0)
    dollars = cost.get("cost_microusd", 0) / 1_000_000
    unknown = ", without tokens whose price is unknown" if cost.get("unpriced_tokens") else ""
    return f"{tokens} tokens, ${dollars:.4f}{unknown}"


@router.post("/agents/{name}/actions/release")
def release(page: Page, name: AgentName, _: Acting, version: Annotated[Text, Form()]) -> Response:
    """Take a version out of quarantine, and let the address lead to it."""
    found = of_agents.promote(page.api, name, version, force=True)
    return page.done(f"{name} is at {found.version}.", f"{PLACE}/{name}")


def _listed(page: View, found: AgentAnswer) -> dict[str, Any]:
    address = addresses(page.api.home, page.api.settings.agents, found.name)
    health = _health(page, found, address.is_up)
    return {**shown(found).model_dump(mode="json"), "address": address, "health": health}


def _health(page: View, agent: AgentAnswer, is_up: bool) -> str:
    """How the current version is, as the host in this process sees it: `up`, `starting`, `crashed`, …"""
    if agent.status is not AgentStatus.READY:
        return str(agent.status)
    served = page.api.serving(agent.name)
    if served is None:
        return "served_elsewhere" if is_up else "not_served"
    return next((str(each["state"]) for each in served if each["commit"] == agent.commit), "resting")


def _document(page: View, found: ServedAgent, pager: Pager) -> dict[str, Any]:
    name = found.name
    with page.api.read() as tx:
        versions = pager.cut(views.versions(tx, name, before=pager.before, limit=pager.one_more))
        runs = views.agent_runs(tx, name, limit=_LAST_RUNS)
        checks = None if found.current is None else views.checks(tx, page.api.ledger.artifacts, name)
    return {
        "agent": shown(found),
        "versions": [
            {**shown(each).model_dump(mode="json"), "why_not": _why_not(each, found)}
            for each in versions.items
        ],
        "next": versions.next,
        "drawing": draw_versions(f"{PLACE}/{name}", _dumped(versions)),
        "runs": list(map(_run, runs)),
        "checks": None if checks is None else _checks(checks),
        "why_not": {"feedback": _not_ready(found), "unpin": None if found.pinned else "it is not pinned"},
    }


def _dumped(found: Listing[Any]) -> list[dict[str, Any]]:
    return [shown(each).model_dump(mode="json") for each in found.items]


def _not_ready(agent: AgentAnswer) -> str | None:
    if agent.status is AgentStatus.READY:
        return None
    return f"the agent is {agent.status}: {agent.reason or 'it has no version yet'}"


def _why_not(version: ListedVersion, agent: AgentAnswer) -> dict[str, str | None]:
    """Why an action on a version cannot be done now; None where it can."""
    quarantined = version.status is VersionStatus.QUARANTINED
    bad = f"it is quarantined: {version.reason}" if quarantined else None
    here = "it is the current version" if version.is_current else None
    return {
        "rollback": _not_ready(agent) or bad or here,
        "pin": _not_ready(agent) or bad or ("it is pinned here" if here and agent.pinned else None),
        "release": _not_ready(agent) or (None if quarantined else "it is not quarantined"),
    }


def _run(found: AgentRunAnswer) -> dict[str, Any]:
    """What was asked, what was decided, and what can be done while it runs."""
    result = found.result if isinstance(found.result, dict) else {}
    decided = {
        key: result.get(key) for key in ("decision", "version", "commit", "summary", "promoted", "quarantine")
    }
    return {
        **shown(found).model_dump(mode="json", exclude={"result"}),
        **clean(decided),
        "controls": None if found.status.final else run_controls(found.run, found.status),
    }


def _checks(found: Mapping[str, Any]) -> dict[str, Any]:
    sections = [
        {
            "check": each["check"],
            "outcome": _outcome(each),
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


def _outcome(check: Mapping[str, Any]) -> str:
    """What a check came to. Older records have the tests of the version before without an outcome."""
    if "outcome" in check:
        return str(check["outcome"])
    return {True: "passed", False: "failed"}.get(check.get("passed"), "unknown")  # type: ignore[arg-type]


_LAST_VERSIONS = 50
Lines = Annotated[int, Query(ge=1, le=2_000)]


@router.get("/agents/{name}/diff")
def diff(page: Page, name: AgentName, old: TextFilter = None, new: TextFilter = None) -> Response:
    """Two versions beside each other; the current one and what it was made from, if none are named."""
    versions = _versions(page, name)
    try:
        compared, why_not = shown(of_agents.diff(page.api, name, old, new)), None
    except Conflict as error:
        # A first version was made from nothing: two must be chosen.
        compared, why_not = None, str(error)
    document = {
        "agent": name,
        "versions": versions,
        "old": old,
        "new": new,
        "compared": compared,
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
        shown = cut(of_agents.state(page.api, name, version, at))
    except Conflict as error:
        # It is missing or spoiled, and an earlier one can be brought back here.
        why_not = f"{error}"
    changes = of_agents.history(page.api, pager, name, version)
    document = {
        "agent": name,
        "agent_version": version,
        "at": at,
        "state": shown,
        "why_not": clean(why_not),
        "changes": [
            {
                **each,
                "why_not": "it is the present state" if number == 0 and pager.before is None else None,
            }
            for number, each in enumerate(_dumped(changes))
        ],
        "next": changes.next,
        "versions": _versions(page, name),
    }
    return page.show("agent_state.html", document, title=f"State of {name}", live={"type": "agent.state"})


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
    found = of_agents.logs(page.api, name, version, server, printed, lines)
    document = {
        "agent": name,
        "agent_version": version,
        "log": shown(found),
        "text": "\n".join(clean(found.lines)),
        "servers": [str(each) for each in Role],
        "lines": lines,
        "versions": _versions(page, name),
    }
    return page.show("agent_logs.html", document, title=f"Log of {name}", live={"type": "agent.*"})


def _versions(page: View, name: str) -> list[dict[str, Any]]:
    """What there is to choose from."""
    with page.api.read() as tx:
        found = views.versions(tx, name, limit=_LAST_VERSIONS)
    return [
        {key: getattr(each, key) for key in ("version", "commit", "is_current", "created_at")}
        for each in found
    ]
