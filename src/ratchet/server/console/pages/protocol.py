"""One protocol: its steps, what was said of them, what it asks, and everything that can be done with it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.ledger.protocol_steps import get_protocol_step
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols.operations import PROTOCOL_OPERATIONS, STEP_OPERATIONS
from ratchet.protocols.views import spec_record
from ratchet.server import protocol_shapes as shapes
from ratchet.server.console.buttons import add_buttons
from ratchet.server.console.protocol_document import protocol_document
from ratchet.server.console.rendering import Page, View
from ratchet.server.fields import Id, IdFilter
from ratchet.server.paging import Before

router = APIRouter()


def _step_page(page: View, step_id: str) -> str:
    with page.api.read() as tx:
        return f"/protocols/{get_protocol_step(tx, int(step_id)).run_id}?step_id={step_id}"


add_buttons(router, [each for each in PROTOCOL_OPERATIONS if not each.reads], "/protocols/{protocol_id}")
add_buttons(router, STEP_OPERATIONS, "/steps/{step_id}", _step_page)


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
