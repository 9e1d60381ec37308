"""One protocol: its steps, what was said of them, what it asks, and everything that can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.kernel import NotFound
from ratchet.ledger.protocol_steps import get_protocol_step
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols.views import spec_record
from ratchet.server import protocol_shapes as shapes
from ratchet.server.console.acting import Acting
from ratchet.server.console.door import ROOT
from ratchet.server.console.protocol_document import protocol_document
from ratchet.server.console.rendering import Page
from ratchet.server.fields import Id, IdFilter
from ratchet.server.paging import Before
from ratchet.server.routes import protocol_steps as of_steps
from ratchet.server.routes import protocols as of_protocols
from ratchet.server.service import Access

router = APIRouter()
_Act = Callable[[Access, int], shapes.Accepted | dict[str, Any]]
_ACTIONS: Mapping[str, _Act] = {
    "start": of_protocols.start,
    "pause": of_protocols.pause,
    "resume": of_protocols.resume,
    "run_next_step": of_protocols.run_next_step,
    "retry_latest": of_protocols.retry_latest,
    "open_pr": of_protocols.open_pr,
    "cancel": of_protocols.cancel,
}
_OF_STEP: Mapping[str, _Act] = {
    "run": of_steps.run,
    "run_qa": of_steps.run_qa,
    "approve": of_steps.approve,
}


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
    with page.api.read() as tx:
        found = shapes.Spec.model_validate(spec_record(get_protocol(tx, protocol_id)))
    return page.show("spec.html", {"spec": found}, title=f"Spec of {found.protocol_name}")


@router.post("/protocols/{protocol_id}/actions/{action}")
def act(page: Page, _: Acting, protocol_id: Id, action: str) -> Response:
    done = _named(_ACTIONS, action)(page.api, protocol_id)
    told = done.message if isinstance(done, shapes.Accepted) else f"the protocol is {done['status']}"
    return page.done(_sentence(told), f"{ROOT}/protocols/{protocol_id}")


@router.post("/steps/{step_id}/actions/{action}")
def act_on_step(page: Page, _: Acting, step_id: Id, action: str) -> Response:
    done = _named(_OF_STEP, action)(page.api, step_id)
    told = done.message if isinstance(done, shapes.Accepted) else f"{done['step_name']} is {done['status']}"
    with page.api.read() as tx:
        run_id = get_protocol_step(tx, step_id).run_id
    return page.done(_sentence(told), f"{ROOT}/protocols/{run_id}?step_id={step_id}")


def _named(actions: Mapping[str, _Act], action: str) -> _Act:
    if action not in actions:
        raise NotFound("action", repr(action[:40]))
    return actions[action]


def _sentence(told: str) -> str:
    return f"{told[:1].upper()}{told[1:]}."
