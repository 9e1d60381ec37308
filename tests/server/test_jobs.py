"""Queues and jobs over HTTP."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import JobId
from ratchet.ledger import Ledger
from ratchet.runtime import Runtime, Worker
from tests.runtime.conftest import ended
from tests.waiting import eventually

FIELDS = {
    "job_id",
    "job_type",
    "payload",
    "status",
    "queue",
    "created_at",
    "attempts",
    "max_attempts",
    "next_run_at",
    "started_at",
    "ended_at",
    "result",
    "error",
    "meta",
}


def enqueue(runtime: Runtime, kind: str = "spell", **options: object) -> JobId:
    with runtime.ledger.write() as tx:
        job_id = runtime.enqueue(
            tx, kind, {"seconds": 60, "file": "/dev/null"} | options.pop("payload", {}), **options
        )  # type: ignore[arg-type,operator]
    assert job_id is not None
    return job_id


def test_jobs_come_newest_first_in_the_shape_of_the_reference(api: TestClient, runtime: Runtime) -> None:
    numbers = [enqueue(runtime) for _ in range(3)]
    jobs = api.get("/queues/jobs").json()
    assert [job["job_id"] for job in jobs] == numbers[::-1]
    assert jobs[0].keys() == FIELDS
    assert (jobs[0]["job_type"], jobs[0]["status"], jobs[0]["attempts"]) == ("spell", "queued", 0)


def test_jobs_are_paged_and_filtered(api: TestClient, runtime: Runtime) -> None:
    for _ in range(5):
        enqueue(runtime)
    late = enqueue(runtime, delay_seconds=3600)
    [scheduled] = api.get("/queues/jobs", params={"status": "scheduled"}).json()
    assert scheduled["job_id"] == late
    assert scheduled["next_run_at"] > scheduled["created_at"]
    answer = api.get("/queues/jobs", params={"status": "queued", "limit": 2})
    seen = len(answer.json())
    while "next" in answer.links:
        answer = api.get(answer.links["next"]["url"])
        seen += len(answer.json())
    assert seen == 5
    assert api.get("/queues/jobs", params={"queue": "other"}).json() == []


def test_a_queue_says_what_lies_in_it(api: TestClient, runtime: Runtime) -> None:
    enqueue(runtime)
    enqueue(runtime, delay_seconds=3600)
    queues = api.get("/queues").json()
    assert queues["backend"] == "ledger"
    assert queues["default"] == {
        **dict.fromkeys(["waiting", "started", "finished", "failed", "cancelled"], 0),
        "queued": 1,
        "scheduled": 1,
        "paused": False,
        "concurrency": None,
        "rate_limit": None,
        "rate_seconds": None,
    }


@pytest.mark.soak
def test_a_paused_queue_starts_nothing_until_it_is_resumed(
    working_api: TestClient, worker: Worker, ledger: Ledger
) -> None:
    assert working_api.post("/queues/default/pause").json()["paused"] is True
    job_id = enqueue(worker.runtime, payload={"seconds": 0})
    assert working_api.get(f"/queues/jobs/{job_id}").json()["status"] == "queued"
    assert working_api.post("/queues/default/resume").json()["paused"] is False
    assert ended(ledger, job_id).result == "rested"
    shown = working_api.get(f"/queues/jobs/{job_id}").json()
    assert (shown["status"], shown["result"], shown["attempts"]) == ("finished", "rested", 1)


@pytest.mark.soak
def test_a_job_tells_of_its_failed_tries(working_api: TestClient, worker: Worker, ledger: Ledger) -> None:
    job_id = enqueue(worker.runtime, "flaky", payload={"failures": 2})
    assert ended(ledger, job_id).result == 3
    tries = working_api.get(f"/queues/jobs/{job_id}").json()["failed_tries"]
    assert [each["attempt"] for each in tries] == [1, 2]
    assert "try 1 fails" in tries[0]["error"]
    assert tries[0]["retry_in_seconds"] == pytest.approx(0.1)


def test_a_queued_job_is_cancelled_at_once(api: TestClient, runtime: Runtime) -> None:
    job_id = enqueue(runtime)
    assert api.post(f"/queues/jobs/{job_id}/cancel").json()["status"] == "cancelled"
    again = api.post(f"/queues/jobs/{job_id}/cancel")
    assert (again.status_code, again.json()["type"]) == (409, "urn:ratchet:problem:conflict")


@pytest.mark.soak
def test_a_running_job_is_stopped_by_its_worker(
    working_api: TestClient, worker: Worker, ledger: Ledger
) -> None:
    job_id = enqueue(worker.runtime)
    eventually(lambda: working_api.get(f"/queues/jobs/{job_id}").json()["status"] == "started")
    stopping = working_api.post(f"/queues/jobs/{job_id}/cancel").json()
    assert (stopping["status"], stopping["meta"]["stop"]) == ("started", "cancelled on request")
    assert ended(ledger, job_id).status == "cancelled"


@pytest.mark.soak
def test_the_fleet_is_listed(working_api: TestClient, worker: Worker) -> None:
    [process] = working_api.get("/processes").json()["items"]
    assert (process["id"], process["state"], process["slots"]) == (worker.process_id, "alive", 4)
    assert "metrics" not in process
