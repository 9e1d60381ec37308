"""Input that nobody means well: never a 500, never more than was asked for."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

IDS = ["0", "-1", str(2**63), "9" * 5000, "1e3", "0x10", "1.5", "%00", "%D9%A1", "null"]
PATHS = [
    "/runs/{}",
    "/runs/{}/steps",
    "/runs/{}/events",
    "/runs/{}/artifacts",
    "/steps/{}",
    "/attempts/{}/artifacts",
    "/queues/jobs/{}",
    "/projects/{}",
    "/protocols/{}/events",
    "/attempts/{}/log",
]


@pytest.mark.parametrize("path", PATHS)
def test_strange_numbers_name_nothing(api: TestClient, path: str) -> None:
    for number in IDS:
        assert api.get(path.format(number)).status_code in (404, 422), number
    assert api.get(path.format(2**63 - 1)).status_code == 404


@pytest.mark.parametrize("path", ["/events", "/runs", "/queues/jobs"])
def test_strange_pages_are_refused(api: TestClient, path: str) -> None:
    for number in IDS:
        assert api.get(f"{path}?before={number}").status_code == 422, number


@pytest.mark.parametrize("limit", [-(10**30), -1, 0, 1, 501, 10**30])
def test_any_limit_is_brought_into_range(api: TestClient, limit: int) -> None:
    assert api.get("/events", params={"limit": limit}).status_code == 200


@pytest.mark.parametrize("text", ["%00", "a%00b", "%ff%fe", "%ed%a0%80", "'; DROP TABLE runs; --", "x" * 201])
def test_strange_text_finds_nothing(api: TestClient, text: str) -> None:
    for path in ("/events?type=", "/runs?kind=", "/queues/jobs?queue="):
        answer = api.get(path + text)
        assert answer.status_code == 422 or answer.json() in ([], {"items": [], "next": None})


@pytest.mark.parametrize("name", ["%00", "..%2f..%2fetc", "x" * 5000, "%ed%a0%80", "a%0ab"])
def test_strange_names_name_nothing(api: TestClient, name: str) -> None:
    assert api.post(f"/queues/{name}/pause").status_code == 404
    assert api.post(f"/schedules/{name}/pause").status_code == 404
    assert api.delete(f"/schedules/{name}").status_code == 404
    assert api.get(f"/artifacts/{name}").status_code == 404
