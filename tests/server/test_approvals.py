"""Approvals over HTTP."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger, change_run
from ratchet.ledger.questions import request_approval
from ratchet.runtime import Runtime, start_run


@pytest.fixture
def run_id(runtime: Runtime) -> int:
    """A run that is blocked."""
    with runtime.ledger.write() as tx:
        run_id = start_run(tx, runtime, "note", kind="workflow", name="w")
        change_run(tx, run_id, RunStatus.BLOCKED)
    return run_id


@pytest.fixture
def approval(ledger: Ledger, run_id: int) -> str:
    """The path of an approval that the run waits for."""
    with ledger.write() as tx:
        asked = request_approval(
            tx, "once", subject="commit c", question="Ship it?", data={"diff": "+1"}, run_id=run_id
        )
    return f"/approvals/{asked.id}"


def test_an_approval_is_shown_and_listed(api: TestClient, approval: str, run_id: int) -> None:
    shown = api.get(approval).json()
    assert (shown["status"], shown["question"], shown["data"]) == ("pending", "Ship it?", {"diff": "+1"})
    assert (shown["run_id"], shown["decided_at"]) == (run_id, None)
    assert api.get("/approvals").json() == {"items": [shown], "next": None}
    assert api.get("/approvals", params={"status": "pending", "run_id": run_id}).json()["items"] == [shown]
    assert api.get("/approvals?status=approved").json()["items"] == []


def test_approvals_are_paged(api: TestClient, ledger: Ledger) -> None:
    with ledger.write() as tx:
        numbers = [request_approval(tx, str(n), subject="s", question="q").id for n in range(3)]
    first = api.get("/approvals?limit=2").json()
    second = api.get("/approvals", params={"limit": 2, "before": first["next"]}).json()
    assert [each["id"] for each in first["items"] + second["items"]] == numbers[::-1]


def test_an_answer_lets_the_run_go_on(api: TestClient, approval: str, run_id: int) -> None:
    answered = api.post(f"{approval}/approve", json={"comment": "fine", "by": "ada"}).json()
    assert (answered["status"], answered["comment"], answered["decided_by"]) == ("approved", "fine", "ada")
    assert answered["decided_at"].endswith("Z")
    assert api.get(f"/runs/{run_id}").json()["status"] == "running"


def test_an_answer_needs_no_body(api: TestClient, approval: str) -> None:
    answered = api.post(f"{approval}/refuse").json()
    assert (answered["status"], answered["comment"], answered["decided_by"]) == ("refused", None, "api")


def test_a_second_answer_is_409(api: TestClient, approval: str) -> None:
    api.post(f"{approval}/refuse")
    for verb in ("approve", "refuse"):
        again = api.post(f"{approval}/{verb}")
        assert (again.status_code, again.json()["type"]) == (409, "urn:ratchet:problem:conflict")
    assert api.get(approval).json()["status"] == "refused"


def test_the_approval_of_a_cancelled_run_cannot_revive_it(
    api: TestClient, approval: str, run_id: int
) -> None:
    api.post(f"/runs/{run_id}/actions/cancel")
    assert api.post(f"{approval}/approve").status_code == 409
    assert api.get(approval).json()["status"] == "closed"
    assert api.get(f"/runs/{run_id}").json()["status"] == "cancelled"


@pytest.mark.parametrize("body", [{"comment": 3}, {"by": ""}, {"surprise": 1}, {"comment": "x" * 10_001}, []])
def test_a_wrong_answer_is_refused_and_decides_nothing(api: TestClient, approval: str, body: object) -> None:
    assert api.post(f"{approval}/approve", json=body).status_code == 422
    assert api.get(approval).json()["status"] == "pending"


def test_what_does_not_exist_is_404(api: TestClient) -> None:
    assert api.get("/approvals/9").status_code == 404
    assert api.post("/approvals/9/approve").status_code == 404
