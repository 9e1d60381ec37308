"""Specs over HTTP: their schema, checking one, auditing those that there are."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.server.protocol_things import new_project, new_protocol, ok

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
STEP = {"id": "00-a", "engine_id": None, "prompt_ref": "00-a.md", "qa": {"policy": "full"}}


def test_the_schema_is_published(api: TestClient) -> None:
    assert "steps" in ok(api.get("/specs/schema"))["properties"]


def test_everything_that_is_wrong_with_a_spec_is_told(api: TestClient) -> None:
    assert ok(api.post("/specs/validate", json={"spec": {"steps": [STEP]}})) == {
        "valid": True,
        "problems": [],
    }
    bad = {"steps": [{**STEP, "prompt_ref": "../../etc/passwd", "qa": {"policy": "never"}}]}
    found = ok(api.post("/specs/validate", json={"spec": bad}))
    assert (found["valid"], bool(found["problems"])) == (False, True)


def test_an_audit_is_put_in_line(api: TestClient) -> None:
    protocol = new_protocol(api, new_project(api))
    begun = ok(api.post("/specs/audit", json={"project_id": 1, "protocol_id": protocol, "backfill": True}))
    assert begun["job"]["job_type"] == "spec_audit"
    assert begun["job"]["payload"] == {"project_id": 1, "protocol_id": protocol, "backfill": True}
    assert ok(api.post("/specs/audit", json={}))["job"]["status"] in ("queued", "waiting")


def test_an_audit_of_nothing_is_refused(api: TestClient) -> None:
    for body in ({"project_id": 9}, {"protocol_id": 9}):
        assert api.post("/specs/audit", json=body).status_code == 404
    for bad in ({"project_id": 0}, {"backfill": "yes"}, {"interval_seconds": -1}):
        assert api.post("/specs/audit", json=bad).status_code == 422
