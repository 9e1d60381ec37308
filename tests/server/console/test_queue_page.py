"""Queue and workers: what waits, who works, what comes by the clock, and what can be done about it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.ledger.tables import processes
from ratchet.runtime import JobStatus, Runtime, Worker, get_job, get_schedule, list_jobs, put_schedule
from ratchet.runtime.processes import ProcessFacts, register
from tests.server.console.forms import send
from tests.server.console.visitor import Visitor
from tests.waiting import eventually

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
HOSTILE = "<b onclick=alert(1)>"


def enqueue(runtime: Runtime, **more: object) -> int:
    with runtime.ledger.write(actor="test") as tx:
        job_id = runtime.enqueue(tx, "note", {"file": HOSTILE}, **more)  # type: ignore[arg-type]
    assert job_id is not None
    return job_id


@pytest.mark.soak
def test_a_job_comes_onto_the_page_and_is_cancelled_there(visitor: Visitor, runtime: Runtime) -> None:
    page = visitor.open("/queue")
    assert page.get_by_text("No jobs yet").is_visible()
    job_id = enqueue(runtime)
    with runtime.ledger.write(actor="test") as tx:
        put_schedule(tx, "nightly", "every night at 2", "note", {"file": "x"})
    page.get_by_role("link", name=str(job_id), exact=True).click()
    page.get_by_role("heading", name=f"Job {job_id}").wait_for()
    visitor.check()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_have_text(f"Job {job_id} is cancelled.")
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    visitor.open("/queue")
    visitor.check()
    visitor.phone()
    page.get_by_role("link", name="failed", exact=True).click()
    page.get_by_text("No such jobs").wait_for()


@pytest.mark.soak
def test_a_queue_is_paused_and_resumed(visitor: Visitor) -> None:
    page = visitor.open("/queue")
    page.locator("#queue-default").get_by_role("button", name="Pause").click()
    expect(page.locator("#queue-default")).to_contain_text("paused")
    page.locator("#queue-default").get_by_role("button", name="Resume").click()
    expect(page.locator("#queue-default")).to_contain_text("active")


def test_a_schedule_rests_goes_on_and_runs_now(visitor_client: TestClient, runtime: Runtime) -> None:
    with runtime.ledger.write(actor="test") as tx:
        put_schedule(tx, "nightly", "every night at 2", "note", {"file": "x"}, key="one")
    send(visitor_client, "/console/queue/schedules/nightly/actions/pause")
    with runtime.ledger.read() as tx:
        assert get_schedule(tx, "nightly").paused
    assert send(visitor_client, "/console/queue/schedules/nightly/actions/run").status_code == 303
    with runtime.ledger.read() as tx:
        [job] = list_jobs(tx)
        assert (job.kind, job.payload, job.key, job.status) == (
            "note",
            {"file": "x"},
            "one",
            JobStatus.QUEUED,
        )
        assert get_schedule(tx, "nightly").last_fired_at is None
    send(visitor_client, "/console/queue/schedules/nightly/actions/resume")
    with runtime.ledger.read() as tx:
        assert not get_schedule(tx, "nightly").paused
    assert send(visitor_client, "/console/queue/schedules/none/actions/run").status_code == 404


def test_the_twin_has_queues_workers_and_jobs(
    visitor_client: TestClient, runtime: Runtime, worker: Worker
) -> None:
    job_id = enqueue(runtime, delay_seconds=3600)
    twin = visitor_client.get("/console/queue?status=scheduled&format=json").json()
    assert [(each["name"], each["scheduled"]) for each in twin["queues"]] == [("default", 1)]
    assert [(each["id"], each["state"]) for each in twin["processes"]] == [(worker.process_id, "alive")]
    assert [each["job_id"] for each in twin["jobs"]] == [job_id]
    page = visitor_client.get(f"/console/queue/jobs/{job_id}").text
    assert HOSTILE not in page


def test_the_page_has_the_words_of_the_command_line(visitor_client: TestClient) -> None:
    page = visitor_client.get("/console/queue").text
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", page)[:10]
    assert [head for head in heads if head != "Limits"] == [
        *("Queue", "State", "Queued", "Scheduled", "Waiting", "Started"),
        *("Finished", "Failed", "Cancelled"),
    ]


def test_an_action_without_its_form_does_nothing(visitor_client: TestClient, runtime: Runtime) -> None:
    job_id = enqueue(runtime)
    for path in (f"jobs/{job_id}/actions/cancel", "queues/default/actions/pause"):
        assert visitor_client.post(f"/console/queue/{path}").status_code == 403
    with runtime.ledger.read() as tx:
        assert get_job(tx, job_id).status is JobStatus.QUEUED


def test_what_has_ended_is_not_cancelled_again(visitor_client: TestClient, runtime: Runtime) -> None:
    job_id = enqueue(runtime)
    path = f"/console/queue/jobs/{job_id}/actions/cancel"
    assert send(visitor_client, path).status_code == 303
    refused = send(visitor_client, path)
    assert refused.status_code == 409
    assert "only an unfinished job can be stopped" in refused.text


def test_nodes_show_their_processes_and_what_runs_there(
    visitor_client: TestClient, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    with runtime.ledger.write(actor="test") as tx:
        job_id = runtime.enqueue(tx, "spell", {"file": str(tmp_path / "marks"), "seconds": 600})

    def node() -> Any:
        [found] = visitor_client.get("/console/queue/nodes?format=json").json()["nodes"]
        return found

    eventually(lambda: [each["job_id"] for each in node()["jobs"]] == [job_id])
    assert node()["kind"] == "machine"
    assert [each["id"] for each in node()["processes"]] == [worker.process_id]
    page = visitor_client.get("/console/queue/nodes").text
    assert worker.process_id in page
    assert f"/console/queue/jobs/{job_id}" in page


@pytest.mark.soak
def test_nodes_of_a_cluster_are_beside_the_machines(visitor: Visitor, runtime: Runtime) -> None:
    row = {
        "id": "ab" * 8,
        "name": "10.0.0.7",
        "cpus": 8.0,
        "cpus_used": 3.0,
        "gpus": ["A100"],
        "memory_bytes": 2**34,
    }
    facts = ProcessFacts(cpus=4, memory_bytes=2**33, placement="ray 10.0.0.5:6379", nodes=(row,))
    with runtime.ledger.write(actor="test") as tx:
        register(tx, "far-1", "worker", 2, facts)
        # However long it takes until the page is there, it has been heard of.
        tx.connection.execute(sa.update(processes).values(beat_at=tx.now + 3_600_000))
    page = visitor.open("/queue")
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_role("heading", name="Nodes", exact=True).wait_for()
    assert page.get_by_text("3 of 8 CPUs").is_visible()
    visitor.check()
    visitor.phone()
