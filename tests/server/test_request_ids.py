"""A request's id is in its answer, its events and its log lines."""

from __future__ import annotations

import io

import pytest
from fastapi.testclient import TestClient

from ratchet.observe import logs

# Nothing here depends on the database.
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.mark.parametrize("given", ["abc-123", "x" * 128, "two words", "!~"])
def test_a_sane_request_id_is_kept(api: TestClient, given: str) -> None:
    assert api.get("/runs", headers={"X-Request-ID": given}).headers["X-Request-ID"] == given


@pytest.mark.parametrize("given", [b"", b"x" * 129, b"tab\there", b"\xc3\xa4", b" padded "])
def test_any_other_is_replaced(api: TestClient, given: bytes) -> None:
    answer = api.get("/runs", headers={b"X-Request-ID": given})
    assert answer.headers["X-Request-ID"].startswith("request-")


def test_each_request_without_one_gets_its_own(api: TestClient) -> None:
    assert len({api.get("/health/live").headers["X-Request-ID"] for _ in range(10)}) == 10


def test_the_events_of_a_change_carry_it(api: TestClient) -> None:
    api.post("/queues/default/pause", headers={"X-Request-ID": "mine"})
    [event] = api.get("/events", params={"type": "queue.paused"}).json()
    assert (event["request_id"], event["actor"]) == ("mine", "api")


def test_a_problem_and_the_log_carry_it(api: TestClient) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    answer = api.get("/runs/999", headers={"X-Request-ID": "mine"})
    assert answer.json()["request_id"] == "mine"
    assert '"request_id": "mine"' in stream.getvalue()
