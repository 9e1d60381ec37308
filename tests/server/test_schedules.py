"""Schedules over HTTP."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

NIGHTLY = {"name": "nightly", "cron": "0 3 * * *", "kind": "note", "timezone": "Europe/Berlin"}


def test_a_schedule_is_made_replaced_paused_resumed_and_removed(api: TestClient) -> None:
    made = api.post("/schedules", json=NIGHTLY).json()
    assert (made["name"], made["paused"], made["payload"]) == ("nightly", False, {})
    assert made["next_at"].endswith("Z")
    api.post("/schedules", json=NIGHTLY | {"cron": "0 4 * * *"})
    [listed] = api.get("/schedules").json()["items"]
    assert listed["cron"] == "0 4 * * *"
    paused = api.post("/schedules/nightly/pause").json()
    assert (paused["paused"], paused["next_at"]) == (True, None)
    assert api.post("/schedules/nightly/resume").json()["paused"] is False
    assert api.delete("/schedules/nightly").status_code == 204
    assert api.delete("/schedules/nightly").status_code == 404
    assert api.get("/schedules").json() == {"items": [], "next": None}
    types = [event["type"] for event in api.get("/events", params={"type": "schedule.*", "since": 0}).json()]
    assert types == [
        "schedule.set",
        "schedule.set",
        "schedule.paused",
        "schedule.resumed",
        "schedule.removed",
    ]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cron": "whenever"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "never"),
        ({"timezone": "Mars/Olympus"}, "Mars"),
        ({"timezone": "../../etc/passwd"}, "time zone"),
        ({"kind": "unknown"}, "unknown"),
        ({"queue": "unknown"}, "unknown"),
        ({"name": "Not A Name"}, "Not A Name"),
        ({"name": None}, "body.name"),
        ({"surprise": 1}, "body.surprise"),
    ],
)
def test_a_wrong_schedule_is_refused_and_told_why(
    api: TestClient, wrong: dict[str, object], told: str
) -> None:
    answer = api.post("/schedules", json=NIGHTLY | wrong)
    assert answer.status_code == 422
    assert told in answer.json()["detail"]
    assert api.get("/schedules").json()["items"] == []
