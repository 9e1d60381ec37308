"""Live, well, ready: three different questions."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient


@pytest.mark.soak
def test_a_server_with_a_worker_is_ready(working_api: TestClient) -> None:
    assert working_api.get("/health").json() == {"status": "ok", "version": "0.1.0", "reasons": []}
    assert working_api.get("/health/ready").json() == {"status": "ready", "reasons": []}


def test_a_server_without_a_worker_lives_and_is_not_ready(api: TestClient) -> None:
    assert api.get("/health/live").json() == {"status": "ok"}
    degraded = api.get("/health")
    assert (degraded.status_code, degraded.json()["status"]) == (200, "degraded")
    answer = api.get("/health/ready")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert answer.json() == {"status": "not ready", "reasons": ["no worker runs in this process"]}


@pytest.mark.soak
def test_a_server_that_is_stopping_is_not_ready_and_opens_no_streams(working_api: TestClient) -> None:
    assert isinstance(working_api.app, FastAPI)
    working_api.app.state.service.stop()
    assert working_api.get("/health/ready").json()["reasons"] == ["the server is shutting down"]
    assert working_api.get("/events/stream").status_code == 503
    assert working_api.get("/runs").status_code == 200
