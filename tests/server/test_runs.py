"""Runs, their steps and attempts, and the actions on them."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import Outcome, RunStatus, StepStatus
from ratchet.ledger import Ledger, change_run, change_step
from ratchet.ledger.runs import close_attempt, create_run, create_steps, get_step, open_attempt
from ratchet.runtime import Runtime, start_run


@pytest.fixture
def run_id(ledger: Ledger) -> int:
    """A running run of three steps, the first of them tried three times."""
    with ledger.write() as tx:
        run_id = create_run(tx, "workflow", "the-run", spec={"a": 1})
        change_run(tx, run_id, RunStatus.RUNNING)
        first, *_ = create_steps(tx, run_id, [("one", {}), ("two", {}), ("three", {})])
        change_step(tx, first, StepStatus.RUNNING)
        for _ in range(3):
            attempt_id = open_attempt(tx, get_step(tx, first))
        close_attempt(tx, attempt_id, Outcome.FAILED, "not good enough")
    return run_id


def pages(api: TestClient, path: str, **params: object) -> list[list[dict[str, object]]]:
    """Every page of a list, by its `next`."""
    found, before = [], None
    while True:
        query = {**params, "before": before} if before is not None else params
        page = api.get(path, params=query).json()  # type: ignore[arg-type]
        found.append(page["items"])
        before = page["next"]
        if before is None:
            return found


def test_a_run_is_shown(api: TestClient, run_id: int) -> None:
    run = api.get(f"/runs/{run_id}").json()
    assert (run["id"], run["status"], run["spec"]) == (run_id, "running", {"a": 1})
    assert run["created_at"].endswith("Z")


def test_runs_are_paged_and_filtered(api: TestClient, ledger: Ledger, run_id: int) -> None:
    with ledger.write() as tx:
        others = [create_run(tx, "research", f"r{index}") for index in range(5)]
    assert [[run["id"] for run in page] for page in pages(api, "/runs", kind="research", limit=2)] == [
        [others[4], others[3]],
        [others[2], others[1]],
        [others[0]],
    ]
    assert [run["id"] for run in api.get("/runs?status=running").json()["items"]] == [run_id]
    assert api.get("/runs?project_id=7").json() == {"items": [], "next": None}


def test_steps_come_last_first(api: TestClient, run_id: int) -> None:
    names = [[step["name"] for step in page] for page in pages(api, f"/runs/{run_id}/steps", limit=2)]
    assert names == [["three", "two"], ["one"]]


def test_a_step_has_its_attempts_last_first(api: TestClient, run_id: int) -> None:
    step_id = api.get(f"/runs/{run_id}/steps").json()["items"][-1]["id"]
    step = api.get(f"/steps/{step_id}?limit=2").json()
    assert (step["name"], step["status"]) == ("one", "running")
    assert [attempt["number"] for attempt in step["attempts"]["items"]] == [3, 2]
    assert step["attempts"]["items"][0]["reason"] == "not good enough"
    rest = api.get(f"/steps/{step_id}", params={"limit": 2, "before": step["attempts"]["next"]}).json()
    assert [attempt["number"] for attempt in rest["attempts"]["items"]] == [1]
    assert rest["attempts"]["next"] is None


def test_a_run_has_its_events_newest_first(api: TestClient, ledger: Ledger, run_id: int) -> None:
    with ledger.write() as tx:
        tx.event("other.thing", run_id=run_id + 1)
    types = [event["type"] for page in pages(api, f"/runs/{run_id}/events", limit=3) for event in page]
    assert (types[0], types[-1], "other.thing" in types) == ("attempt.failed", "run.created", False)


def test_a_run_is_paused_resumed_and_cancelled(api: TestClient, runtime: Runtime) -> None:
    with runtime.ledger.write() as tx:
        run_id = start_run(tx, runtime, "note", kind="workflow", name="w")
    for action, status in [("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")]:
        assert api.post(f"/runs/{run_id}/actions/{action}").json()["status"] == status


def test_an_illegal_change_is_409_and_says_what_is_legal(api: TestClient, run_id: int) -> None:
    resumed = api.post(f"/runs/{run_id}/actions/resume")
    assert (resumed.status_code, resumed.json()["type"]) == (409, "urn:ratchet:problem:state-changed")
    assert resumed.json()["detail"].startswith(f"run {run_id} is running, not paused or blocked")
    api.post(f"/runs/{run_id}/actions/cancel")
    paused = api.post(f"/runs/{run_id}/actions/pause")
    assert (paused.status_code, paused.json()["type"]) == (409, "urn:ratchet:problem:illegal-transition")
    assert "that is final" in paused.json()["detail"]


def test_cancelling_twice_changes_nothing(api: TestClient, run_id: int) -> None:
    first = api.post(f"/runs/{run_id}/actions/cancel").json()
    assert api.post(f"/runs/{run_id}/actions/cancel").json() == first
    statuses = {step["status"] for step in api.get(f"/runs/{run_id}/steps").json()["items"]}
    assert statuses == {"cancelled"}


@pytest.mark.parametrize(
    "path", ["/runs/9", "/runs/9/steps", "/runs/9/events", "/runs/9/artifacts", "/steps/9"]
)
def test_what_does_not_exist_is_404(api: TestClient, path: str) -> None:
    assert api.get(path).status_code == 404
    assert api.post("/runs/9/actions/pause").status_code == 404
