"""The description that programs are made from."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

# Nothing here depends on the database.
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
OPEN = {"/health", "/health/live", "/health/ready", "/metrics"}


def test_it_names_the_api_and_how_to_get_in(api: TestClient) -> None:
    description = api.get("/openapi.json").json()
    assert (description["info"]["title"], description["info"]["version"]) == ("Ratchet", "0.1.0")
    assert description["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, operations in description["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (path not in OPEN), path
            assert operation["tags"], path


def test_every_operation_documents_its_problems_and_its_answer(api: TestClient) -> None:
    for path, operations in api.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"], path
            assert "422" not in operation["responses"], path


def test_answers_have_schemas(api: TestClient) -> None:
    schemas = api.get("/openapi.json").json()["components"]["schemas"]
    assert {"Run", "Event", "Job", "JobWithTries", "StepWithAttempts", "Schedule", "Queues"} <= schemas.keys()
    assert schemas["Run"]["properties"]["created_at"] == {
        "type": "string",
        "format": "date-time",
        "title": "Created At",
    }
