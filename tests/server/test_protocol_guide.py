"""docs/protocols-api.md tells of every request of projects and protocols, and of none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from ratchet.projects.operations import OPERATIONS
from ratchet.projects.secrets import NAMES
from ratchet.protocols.operations import PROTOCOL_OPERATIONS
from ratchet.protocols.step_operations import ABOUT_PROTOCOLS, SPEC_OPERATIONS, STEP_OPERATIONS, approve_step
from ratchet.server.operation import body_of, router_of
from ratchet.server.routes import attempts, flows, webhooks

GUIDE = (Path(__file__).parents[2] / "docs" / "protocols-api.md").read_text()
ROUTERS = (
    attempts.router,
    router_of("projects", OPERATIONS),
    flows.protocols,
    flows.specs,
    flows.steps,
    webhooks.router,
)
PLACES = re.compile(r"\{(\w+?)(?:_id)?(?::path)?\}")
ROUTES = {
    (method, PLACES.sub(lambda found: found[1].upper(), route.path))
    for router in ROUTERS
    for route in router.routes
    for method in route.methods
}
BODIES: list[type[BaseModel]] = [
    body
    for each in (*OPERATIONS, *PROTOCOL_OPERATIONS, *STEP_OPERATIONS, *ABOUT_PROTOCOLS, *SPEC_OPERATIONS)
    if hasattr(body := body_of(each), "model_fields") and each is not approve_step
]


def test_every_request_is_told_and_no_other() -> None:
    told = re.findall(r"^\| `([A-Z]+) (/\S+)` \|", GUIDE, flags=re.M)
    assert (set(told), len(told)) == (ROUTES, len(ROUTES))


@pytest.mark.parametrize("model", BODIES, ids=lambda model: model.__name__)
def test_every_field_of_a_request_is_told(model: type[BaseModel]) -> None:
    assert set(model.model_fields) <= set(re.findall(r"`([\w.]+)`", GUIDE))


def test_every_secret_is_told() -> None:
    assert all(f"`{name}`" in GUIDE for name in NAMES)
