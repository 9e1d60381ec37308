"""Schedules over HTTP."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from ratchet.flowkit.writer import write_spec
from ratchet.ledger.workflows import save_workflow
from ratchet.runtime import Runtime
from tests.workflows.running.tools import sums

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


def test_a_schedule_is_run_before_its_time(api: TestClient) -> None:
    made = api.post("/schedules", json=NIGHTLY | {"payload": {"value": 7}}).json()
    started = api.post("/schedules/nightly/run")
    assert started.status_code == 202
    [job] = api.get("/queues/jobs").json()
    assert (job["job_id"], job["job_type"], job["payload"]) == (
        started.json()["job_id"],
        "note",
        {"value": 7},
    )
    assert api.get("/schedules/nightly").json() == made
    assert api.post("/schedules/none/run").status_code == 404


def test_a_schedule_is_said_in_plain_english(api: TestClient) -> None:
    given = {"name": "mornings", "when": "every weekday at 9am", "kind": "note", "missed": "all"}
    made = api.post("/schedules", json={**given, "timezone": "Europe/Berlin", "background": True}).json()
    assert (made["cron"], made["words"]) == ("0 9 * * 1-5", "every weekday at 9am")
    assert (made["meaning"], made["missed"], made["priority"]) == ("every weekday at 09:00", "all", 9)
    assert (made["background"], made["next"][0], len(made["next"])) == (True, made["next_at"], 3)
    assert api.get("/schedules/mornings").json() == made
    times = api.get("/schedules/mornings/next", params={"count": 5}).json()
    assert times["next"][:3] == made["next"]
    assert len(times["next"]) == 5


def test_a_time_is_read_without_making_anything(api: TestClient) -> None:
    read = api.post("/schedules/read", json={"when": "every 5 minutes", "timezone": "Asia/Tokyo"}).json()
    assert (read["cron"], read["meaning"], len(read["next"])) == ("*/5 * * * *", "every 5 minutes", 3)
    refused = api.post("/schedules/read", json={"when": "every 7 minutes"})
    assert refused.status_code == 422
    assert "7 minutes do not divide an hour" in refused.json()["detail"]
    assert api.get("/schedules").json()["items"] == []


def test_a_schedule_that_does_not_exist_is_not_found(api: TestClient) -> None:
    for answer in (
        api.get("/schedules/none"),
        api.get("/schedules/none/next"),
        api.post("/schedules/none/resume"),
    ):
        assert answer.status_code == 404
        assert "schedule none does not exist" in answer.json()["detail"]


def test_a_saved_workflow_and_a_batch_are_scheduled(api: TestClient, runtime: Runtime) -> None:
    with runtime.ledger.write() as tx:
        save_workflow(tx, write_spec(sums()), origin="test")
    wanted = {"name": "s", "when": "daily", "workflow": "sums", "inputs": {"number": 5}, "overlap": "queue"}
    made = api.post("/schedules", json=wanted)
    assert made.status_code == 200, made.text
    assert (made.json()["kind"], made.json()["payload"]["workflow"]) == ("workflow.scheduled", "sums")
    without = api.post("/schedules", json={"name": "t", "when": "daily", "workflow": "sums"})
    assert without.status_code == 422
    assert "number" in without.json()["detail"]
    batch = api.post("/schedules", json={"name": "o", "when": "nightly at 2", "optimise": {"budget_usd": 5}})
    assert batch.status_code == 200, batch.text
    assert (batch.json()["kind"], batch.json()["background"]) == ("workflow.optimise", True)
    absent = api.post("/schedules", json={"name": "a", "when": "daily", "workflow": "absent"})
    assert absent.status_code == 404


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
        ({"when": "daily"}, "body"),
        ({"cron": "every 90 minutes"}, "90 minutes are no whole number of hours"),
        ({"missed": "often"}, "body.missed"),
        ({"priority": 10}, "body.priority"),
        ({"priority": 3, "background": True}, "background work has priority 9"),
        ({"workflow": "other"}, "exactly one of"),
        ({"kind": None}, "exactly one of"),
        ({"inputs": {"a": 1}}, "inputs has no meaning with kind"),
    ],
)
def test_a_wrong_schedule_is_refused_and_told_why(
    api: TestClient, wrong: dict[str, object], told: str
) -> None:
    answer = api.post("/schedules", json=NIGHTLY | wrong)
    assert answer.status_code == 422
    assert told in answer.json()["detail"]
    assert api.get("/schedules").json()["items"] == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "thing",
    [
        {"optimise": {"engine": "replay:/dev/zero"}},
        {"kind": "note", "payload": {"wish": [{"engine": "replay:/etc/passwd"}]}},
    ],
)
def test_a_schedule_over_http_names_no_recording(api: TestClient, thing: dict[str, object]) -> None:
    answer = api.post("/schedules", json={"name": "nightly", "when": "0 3 * * *", **thing})
    assert (answer.status_code, "recording" in answer.text) == (422, True)
