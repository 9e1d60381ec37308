"""docs/protocols-api.md tells of every request of projects and protocols, and of none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from ratchet.projects.secrets import NAMES
from ratchet.server.routes import (
    attempts,
    branches,
    clarifications,
    projects,
    protocol_steps,
    protocols,
    specs,
    steps,
    webhooks,
)

GUIDE = (Path(__file__).parents[2] / "docs" / "protocols-api.md").read_text()
MODULES = (attempts, branches, clarifications, projects, protocol_steps, protocols, specs, steps, webhooks)
PLACES = re.compile(r"\{(\w+?)(?:_id)?(?::path)?\}")
ROUTES = {
    (method, PLACES.sub(lambda found: found[1].upper(), route.path))
    for module in MODULES
    for route in module.router.routes
    for method in route.methods
}
BODIES: list[type[BaseModel]] = [
    projects.NewProject,
    projects.Changes,
    branches.Deletion,
    clarifications.Answer,
    protocols.NewProtocol,
    protocols.Import,
    protocol_steps.NewStep,
    specs.GivenSpec,
    specs.Audit,
]


def test_every_request_is_told_and_no_other() -> None:
    told = re.findall(r"^\| `([A-Z]+) (/\S+)` \|", GUIDE, flags=re.M)
    assert (set(told), len(told)) == (ROUTES, len(ROUTES))


@pytest.mark.parametrize("model", BODIES, ids=lambda model: model.__name__)
def test_every_field_of_a_request_is_told(model: type[BaseModel]) -> None:
    assert set(model.model_fields) <= set(re.findall(r"`([\w.]+)`", GUIDE))


def test_every_secret_is_told() -> None:
    assert all(f"`{name}`" in GUIDE for name in NAMES)
