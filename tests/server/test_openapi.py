"""The description that programs are made from."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

# Nothing here depends on the database.
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
OF_PROTOCOLS = {"projects", "protocols", "steps", "attempts", "clarifications", "specs"}
HEALTH = {"/health", "/health/live", "/health/ready", "/metrics"}
# Each request is signed with a secret of its own.
WEBHOOKS = {"/webhooks/github", "/webhooks/gitlab", "/webhooks/triggers/{name}"}
OPEN = HEALTH | WEBHOOKS


@pytest.mark.soak
def test_it_names_the_api_and_how_to_get_in(api: TestClient) -> None:
    description = api.get("/openapi.json").json()
    assert (description["info"]["title"], description["info"]["version"]) == ("Ratchet", "0.1.0")
    assert description["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, operations in description["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (path not in OPEN), path
            assert operation["tags"], path


@pytest.mark.soak
def test_every_operation_documents_its_problems_and_its_answer(api: TestClient) -> None:
    for path, operations in api.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"], path
            for status, response in operation["responses"].items():
                if status >= "400" and not path.startswith("/health"):
                    assert list(response["content"]) == ["application/problem+json"], (path, status)


@pytest.mark.soak
def test_what_is_done_with_protocols_documents_each_status(api: TestClient) -> None:
    found = 0
    for path, operations in api.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            if not OF_PROTOCOLS & set(operation["tags"]):
                continue
            found += 1
            told = operation["responses"].keys()
            assert {"401", "403"} <= told, path
            assert ("{" in path) <= ("404" in told), path
            assert ("/actions/" in path) <= ("409" in told), path
            needs_body = operation.get("requestBody", {}).get("required", False)
            assert needs_body <= ({"400", "422"} <= told), path
            assert any(name.get("name") == "X-Project-Token" for name in operation["parameters"]), path
            assert operation["responses"].get("200") or operation["responses"].get("204"), path
    assert found > 40


@pytest.mark.soak
def test_answers_have_schemas(api: TestClient) -> None:
    schemas = api.get("/openapi.json").json()["components"]["schemas"]
    assert {"Run", "Event", "Job", "JobWithTries", "StepWithAttempts", "Schedule", "Queues"} <= schemas.keys()
    assert schemas["Run"]["properties"]["created_at"] == {
        "type": "string",
        "format": "date-time",
        "title": "Created At",
    }
