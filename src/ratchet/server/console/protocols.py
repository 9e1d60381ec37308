"""Protocols: which there are, and making one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from starlette.responses import Response

from ratchet.engines.preflight import check_for_worker
from ratchet.kernel import Misuse, NotFound, RunStatus, StepStatus
from ratchet.ledger import Attempt, Event, EventFilter, Transaction
from ratchet.ledger.events import latest
from ratchet.ledger.ledger import tail_log
from ratchet.ledger.projects import Project, get_project, list_projects
from ratchet.ledger.protocols import (
    Protocol,
    ProtocolStep,
    count_protocol_steps,
    get_protocol,
    get_protocol_step,
    list_protocol_steps,
)
from ratchet.ledger.questions import get_clarification
from ratchet.ledger.runs import get_step, latest_attempts, newest_attempts
from ratchet.operations import Operation
from ratchet.protocols.actions import create_protocol, start_protocol, why_not, why_not_step
from ratchet.protocols.ci import ci_summary
from ratchet.protocols.engine_choice import check_new
from ratchet.protocols.names import create_described
from ratchet.protocols.operations import PROTOCOL_OPERATIONS, listed
from ratchet.protocols.overview import overview
from ratchet.protocols.policies import read_policies
from ratchet.protocols.spec import dependencies
from ratchet.protocols.step_operations import STEP_OPERATIONS
from ratchet.protocols.step_operations import spec as show_spec
from ratchet.protocols.views import attempt_answers, protocol_record
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.attempts import excerpt, pull_request_of, report_of, verdict_of
from ratchet.server.console.drawings import Drawing, GraphNode, draw
from ratchet.server.console.formats import spent
from ratchet.server.console.forms import add_buttons
from ratchet.server.console.page import Page, View
from ratchet.server.console.projects import asked_of, forms
from ratchet.server.fields import MAX_ID, Before, Id, IdFilter, Paging, Shape, Text
from ratchet.server.operation import shown
from ratchet.server.project_scope import enter
from ratchet.server.routes.attempts import change_of
from ratchet.server.service import Access

router = APIRouter()
_MOST_PROJECTS = 200
Description = Annotated[str, Form(max_length=100_000)]


@router.get("/protocols")
def protocols(
    page: Page,
    pager: Paging,
    project_id: IdFilter = None,
    status: Annotated[RunStatus | None, Query()] = None,
) -> Response:
    api = page.api
    shown = listed(api, pager, project_id=project_id, status=status)
    with api.read() as tx:
        counts = count_protocol_steps(tx, [each.run_id for each in shown.items])
        choice = _projects(api, tx)
        names = {each.project_id: get_project(tx, each.project_id).name for each in shown.items}
    document = {
        "protocols": [
            {
                **protocol_record(each, brief=True),
                "project": names[each.project_id],
                "steps": counts[each.run_id],
                "waits": each.status.stands and not each.status.final,
                "pull_request": pull_request_of(each.pull_request),
            }
            for each in shown.items
        ],
        "next": shown.next,
        "project_id": project_id,
        "status": status,
        "statuses": list(RunStatus),
        "projects": [{key: getattr(each, key) for key in ("id", "name", "base_branch")} for each in choice],
        "automatic": api.runtime.settings.protocols.automatic,
    }
    live: dict[str, Any] = {"type": "run.*"} if project_id is None else {"project_id": project_id}
    return page.show(
        "protocols.html", document, title="Protocols", live=live if pager.before is None else None
    )


@router.post("/protocols")
def create(
    page: Page,
    _: Acting,
    project: Annotated[int, Form(ge=1, le=MAX_ID)],
    description: Description,
    name: Annotated[Text | None, Form()] = None,
    base_branch: Annotated[Text | None, Form()] = None,
    automatic: Annotated[bool, Form()] = False,
) -> Response:
    """Make it and start it. Without a name it gets the next number and the first words of its description."""
    api, text = page.api, description.replace("\r\n", "\n").strip()
    if not text:
        raise Misuse("the description is empty", hint="say what is to be changed")
    with api.read() as tx:
        enter(api, tx, "project", project)
        owner = get_project(tx, project)
    check_for_worker(api.runtime, partial(check_new, api.runtime))

    def make(tx: Transaction, called: str) -> int:
        run_id = create_protocol(
            tx,
            api.runtime,
            project,
            called,
            base_branch=base_branch,
            description=text,
            automatic=automatic,
        )
        start_protocol(tx, api.runtime, run_id)
        return run_id

    if name is not None:
        with api.write() as tx:
            run_id = make(tx, name)
    else:
        run_id = create_described(
            api.runtime, owner, text, make, write=api.write, base_branch=base_branch, make_clone=False
        )
    return page.done("The protocol is made; planning is queued.", f"{ROOT}/protocols/{run_id}")


def _projects(api: Access, tx: Transaction) -> list[Project]:
    """Those that can be chosen: neither archived nor guarded by a token that was not shown."""
    found = list_projects(tx, limit=_MOST_PROJECTS)
    hidden = api.caller.hidden(tx, (each.id for each in found))
    return [each for each in found if each.id not in hidden]


_ATTEMPTS = 10
_TAIL = 60
# Sessions say a lot, which the log shows; what the protocol itself told is among the last of these.
_LOOKED_AT, _TOLD = 200, 15
_BUSY = (StepStatus.RUNNING, StepStatus.NEEDS_QA)
_STOPPED = (StepStatus.FAILED, StepStatus.BLOCKED)


def protocol_document(
    api: Access, protocol_id: int, step_id: int | None, before: int | None
) -> dict[str, Any]:
    """`before` is the number of an attempt at the step. Raises `NotFound`, also for a step of another protocol."""
    with api.read() as tx:
        found = overview(tx, protocol_id)
        protocol, steps = get_protocol(tx, protocol_id), list_protocol_steps(tx, protocol_id)
        tries = newest_attempts(tx, protocol_id)
        chosen = _chosen(protocol, steps, step_id)
        asked, answered = asked_of(tx, run_id=protocol_id)
        # What is asked about the whole project may stop this protocol, too.
        of_project = [each["id"] for each in found["questions"] if each["protocol_run_id"] is None]
        return {
            "protocol": {
                **{key: value for key, value in found.items() if key not in ("steps", "questions")},
                "pull_request": pull_request_of(protocol.pull_request),
            },
            "steps": [
                {**shown, "why_not": why_not_step(protocol, step)}
                for shown, step in zip(found["steps"], steps, strict=True)
            ],
            "why_not": why_not(protocol, steps),
            "graph": _graph(protocol, steps),
            "questions": forms(get_clarification(tx, each) for each in of_project) + asked,
            "answered": answered,
            "running": [_running(tx, each, steps) for each in tries if each.ended_at is None],
            "chosen": None if chosen is None else _in_full(api, tx, chosen, before),
            "planning": attempt_answers(tx, _of_planning(tries, steps)),
            "policies": _policies(steps),
            "ci": shown(ci_summary(tx, protocol)),
            "spent": spent(tx, api.runtime.settings, "run", protocol_id),
            "told": _events(tx, protocol_id),
        }


def _chosen(protocol: Protocol, steps: Sequence[ProtocolStep], step_id: int | None) -> ProtocolStep | None:
    """The step to show in full: the one asked for, else the one that works, is stopped, or was done last."""
    if step_id is not None:
        found = [each for each in steps if each.step_id == step_id]
        if not found:
            raise NotFound(f"step of protocol {protocol.run_id}", step_id)
        return found[0]
    busy = [each for each in steps if each.status in _BUSY]
    stopped = [each for each in steps if each.status in _STOPPED]
    done = [each for each in steps if each.status is StepStatus.COMPLETED]
    return next((some[-1] for some in (busy, stopped, done) if some), steps[0] if steps else None)


def _graph(protocol: Protocol, steps: Sequence[ProtocolStep]) -> Drawing:
    needs = dependencies(steps)
    nodes = [
        GraphNode(
            each.name,
            each.name,
            "waiting" if each.awaits_ci else str(each.status),
            note="waits for CI" if each.awaits_ci else each.step_type,
            href=f"{ROOT}/protocols/{protocol.run_id}?step_id={each.step_id}#step",
        )
        for each in steps
    ]
    return draw(nodes, [(before, name) for name, found in needs.items() for before in sorted(found)])


def _in_full(api: Access, tx: Transaction, step: ProtocolStep, before: int | None) -> dict[str, Any]:
    """One step with some attempts, and what the last of them that was judged came to."""
    tries = latest_attempts(tx, step.step_id, before=before, limit=_ATTEMPTS + 1)
    judged = next((each for each in tries if each.verdict is not None), None)
    return {
        "step_id": step.step_id,
        "attempts": attempt_answers(tx, tries[:_ATTEMPTS]),
        "next": tries[_ATTEMPTS - 1].number if len(tries) > _ATTEMPTS else None,
        "judged": None if judged is None else judged.number,
        "verdict": None if judged is None else verdict_of(judged.verdict),
        "report": None if judged is None else report_of(api, judged.verdict),
        "diff": None if judged is None else excerpt(api, change_of(tx, judged.id)),
    }


def _of_planning(tries: Sequence[Attempt], steps: Sequence[ProtocolStep]) -> list[Attempt]:
    """Attempts at what is no step of the plan: making it, and taking its parts apart."""
    planned = {each.step_id for each in steps}
    return [each for each in tries if each.step_id not in planned]


def _running(tx: Transaction, attempt: Attempt, steps: Sequence[ProtocolStep]) -> dict[str, Any]:
    names = {each.step_id: each.name for each in steps}
    return {
        "attempt_id": attempt.id,
        "number": attempt.number,
        "step_name": names.get(attempt.step_id) or get_step(tx, attempt.step_id).name,
        "log": tail_log(tx, attempt.id, most=_TAIL),
    }


def _policies(steps: Sequence[ProtocolStep]) -> list[dict[str, Any]]:
    """Each policy of a step with how often it fired: a loop counts itself, and who was triggered knows by whom."""
    triggered = [_state(each).get("last_triggered_by") for each in steps]
    return [
        {
            "step_name": step.name,
            "module_id": policy.module_id,
            "behavior": str(policy.behavior),
            "back": policy.step_back,
            "target": policy.target,
            "reasons": sorted(policy.reasons),
            "fired": _counts(step).get(policy.module_id, triggered.count(step.name)),
            "limit": policy.max_iterations,
        }
        for step in steps
        for policy in read_policies(step.policy)
    ]


def _state(step: ProtocolStep) -> Mapping[str, Any]:
    return step.runtime_state if isinstance(step.runtime_state, dict) else {}


def _counts(step: ProtocolStep) -> Mapping[str, int]:
    counts = _state(step).get("loop_counts")
    return counts if isinstance(counts, dict) else {}


def _events(tx: Transaction, protocol_id: int) -> list[Shape]:
    """What happened last, without what sessions say."""
    found = latest(tx.connection, where=EventFilter(run_id=protocol_id), limit=_LOOKED_AT)
    return [shown(each) for each in found if not _is_chatter(each)][:_TOLD]


def _is_chatter(event: Event) -> bool:
    return event.type.startswith(("session.", "job.", "attempt.", "step.created"))


def _step_page(page: View, step_id: str) -> str:
    with page.api.read() as tx:
        return f"/protocols/{get_protocol_step(tx, int(step_id)).run_id}?step_id={step_id}"


def _actions(operations: Iterable[Operation[..., Any]]) -> list[Operation[..., Any]]:
    return [each for each in operations if "/actions/" in each.path]


add_buttons(router, _actions(PROTOCOL_OPERATIONS), "/protocols/{protocol_id}")
add_buttons(router, _actions(STEP_OPERATIONS), "/steps/{step_id}", _step_page)


@router.get("/protocols/{protocol_id}")
def protocol(page: Page, protocol_id: Id, step_id: IdFilter = None, before: Before = None) -> Response:
    """`step_id` is the step that is shown in full; without it, the one that something happens with.

    `before` leads to its earlier attempts.
    """
    document = protocol_document(page.api, protocol_id, step_id, before)
    name = document["protocol"]["protocol_name"]
    return page.show("protocol.html", document, title=name, live={"run_id": protocol_id})


@router.get("/protocols/{protocol_id}/spec")
def spec(page: Page, protocol_id: Id) -> Response:
    found = show_spec(page.api, protocol_id)
    return page.show("spec.html", {"spec": found}, title=f"Spec of {found.protocol_name}")
