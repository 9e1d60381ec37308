"""Requests are traced and logged."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from ratchet.observe import logs, tracing
from tests.observe.test_tracing import collector

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    tracing.shutdown()


def test_a_request_is_a_span_with_its_id(api: TestClient) -> None:
    sent: list[tuple[str, bytes]] = []
    with collector(sent) as endpoint:
        tracing.configure(True, endpoint)
        api.get("/runs/7", headers={"X-Request-ID": "the-one"})
        tracing.shutdown()
    [(_, body)] = sent
    assert b"http.request" in body
    assert b"/runs/7" in body
    assert b"the-one" in body


@pytest.mark.soak
def test_a_request_is_a_log_line_that_its_path_cannot_break(api: TestClient) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    api.get("/a%0Ab?token=secret")
    api.get("/health/live")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    # The client of the test may log as well.
    [line] = [line for line in lines if line["logger"].startswith("ratchet.")]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/a%0Ab", 404)
    assert line["ms"] >= 0
